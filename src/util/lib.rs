//! Utilities for all layers: delays between tries, the causes of errors, writes that
//! share a system call, durations, exit statuses, and what exists once in a process.
//!
//! It knows nothing of locks, and imports no transport.

pub mod cork;
pub mod descriptors;
pub mod duration;
pub mod error_chain;
pub mod exit;
pub mod retry;
pub mod signals;
