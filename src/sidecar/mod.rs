//! The Dapr API, served by leasehold itself.

pub mod passthrough;
pub mod secrets;
