//! Shared code of the conformance tests.

pub mod conformance;
