//! What must hold of every parser at an edge, whatever it is given.
//!
//! Each function takes bytes and panics where a property is broken. The fuzz
//! targets under `fuzz/` call them, and so do the unit tests with the inputs
//! under `fuzz/corpus-seeds/`: an input that broke something once is put there.
//! There in fuzzing builds and tests only.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken property panics")]

mod input;
mod metadata;
#[cfg(test)]
mod tests;
mod world;

pub(crate) use input::Input;
pub(crate) use world::{Told, World, frame};

pub use metadata::component_metadata;

/// The messages of the component protocol: their parts, then the service over
/// the memory store.
pub fn component_protocol(data: &[u8]) {
    crate::component::fuzzing::protocol(data);
}

/// The messages of both of the sidecar's gRPC services, over the memory store.
pub fn sidecar_grpc(data: &[u8]) {
    crate::sidecar::fuzzing::grpc(data);
}

/// Paths, headers and bodies of the sidecar's HTTP port, over the memory
/// store; and the durations in them.
pub fn sidecar_http(data: &[u8]) {
    crate::sidecar::fuzzing::http(data);
}

/// Component YAML, from a file's text to the check of a store's properties.
pub fn component_yaml(data: &[u8]) {
    crate::manifest::fuzzing::yaml(data);
}

/// What Redis answers and publishes, and what is written there.
pub fn redis_values(data: &[u8]) {
    crate::backend::fuzzing::redis(data);
}

/// The keys and values in etcd, and the copy of a queue that follows them.
pub fn etcd_values(data: &[u8]) {
    crate::backend::fuzzing::etcd(data);
}

/// What another process's lock store answers.
pub fn pluggable_answers(data: &[u8]) {
    crate::backend::fuzzing::pluggable(data);
}

/// Takes an input; panics where a property is broken.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: &[(&str, Target)] = &[
    ("component_protocol", component_protocol),
    ("sidecar_grpc", sidecar_grpc),
    ("sidecar_http", sidecar_http),
    ("component_yaml", component_yaml),
    ("component_metadata", component_metadata),
    ("redis_values", redis_values),
    ("etcd_values", etcd_values),
    ("pluggable_answers", pluggable_answers),
];
