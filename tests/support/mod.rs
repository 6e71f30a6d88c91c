//! What tests share: servers that they own.
#![allow(dead_code, reason = "no test uses all of it")]

pub mod conformance;
pub mod leasehold;
pub mod redis;
