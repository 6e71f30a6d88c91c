//! Who holds what and who waits: the app's own locks, over gRPC and HTTP.
//!
//! [`calls`] has the calls, which answer both protocols with the messages of gRPC; [`http`]
//! reads queries ([`params`]) and writes JSON.

mod calls;
mod grpc;
pub(super) mod http;
mod page_tokens;
mod params;

pub(super) use page_tokens::PageTokens;
