//! The Dapr API, served by leasehold itself.

pub mod app_health;
pub mod app_probe;
pub mod passthrough;
pub mod secrets;
