//! Properties that must hold of every parser of bytes from outside, whatever the input.
//!
//! Each harness takes bytes and panics if a property is broken. The fuzz targets under
//! `fuzz/` call the harnesses, and so do the unit tests, with the inputs under
//! `fuzz/corpus-seeds/`; an input that once broke a property is added there. This module
//! exists in fuzzing builds and in tests only, and no other module uses it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken property panics")]

mod component;
mod metadata;
mod sidecar;
#[cfg(test)]
mod tests;

pub use component::component_protocol;
pub use metadata::component_metadata;
pub use sidecar::{health_answers, sidecar_grpc, sidecar_http};

pub use crate::front::fuzzing::redis_front;

/// Takes an input; panics if a property is broken.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: &[(&str, Target)] = &[
    ("component_protocol", component_protocol),
    ("sidecar_grpc", sidecar_grpc),
    ("sidecar_http", sidecar_http),
    ("health_answers", health_answers),
    ("component_metadata", component_metadata),
    ("redis_front", redis_front),
];
