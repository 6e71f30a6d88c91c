//! The app: its health, and the notices of lost locks that it gets.

pub mod callback;
pub mod client;
pub mod health;
pub mod probe;
pub mod protocol;
