//! The app: whether it is healthy, and how it is told of lost locks.

pub mod callback;
pub mod client;
pub mod health;
pub mod probe;
pub mod protocol;
