//! What every layer of leasehold may use and none of them owns: delays between tries, the
//! causes of errors, writes that share a system call, and what a process has once.
//!
//! It knows nothing of locks, and imports no transport.

pub mod cork;
pub mod descriptors;
pub mod error_chain;
pub mod retry;
pub mod signals;
