//! Who holds what and who waits: the app's own locks, over gRPC and HTTP.
//!
//! [`calls`] has the calls, which answer both protocols with the messages of gRPC; [`force`]
//! ends grants and logs it. [`http`] reads queries ([`params`]) and writes [`json`].

mod calls;
pub(super) mod force;
mod grpc;
pub(super) mod http;
mod json;
mod page_tokens;
mod params;

pub(crate) use force::Force;
pub(super) use page_tokens::PageTokens;
