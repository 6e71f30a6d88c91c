//! The API towards the app: the lock calls, and what stands before them.
//!
//! - [`alpha1`], [`alpha2`]: the lock APIs, each a core and its two edges.
//! - [`routes`]: which service answers which path.
//! - [`auth`], [`browsers`]: which callers are let in.
//! - [`fallback`]: what answers all other calls.

pub mod alpha1;
pub mod alpha2;
pub mod auth;
pub(crate) mod body;
pub mod browsers;
pub(crate) mod error;
pub(crate) mod fallback;
pub(crate) mod metadata;
mod paths;
mod query;
pub(crate) mod routes;
