//! The alpha1 lock API. Messages, codes, and their order are exactly daprd's.

mod core;
mod error;
pub mod grpc;
pub mod http;
mod json;

pub use core::Alpha1;
pub use error::Alpha1Error;

/// Header and gRPC initial metadata of a granted try: alpha1 has no field for
/// the token.
pub const FENCING_TOKEN: &str = "leasehold-fencing-token";
