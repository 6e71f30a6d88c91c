//! Calls to a sidecar.

use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::Channel,
};

/// The header, or gRPC metadata, that carries an API token: towards the sidecar, and from it to
/// the app.
pub const TOKEN_HEADER: &str = "dapr-api-token";

/// A sidecar's gRPC port, for any client of this crate.
pub type SidecarChannel = InterceptedService<Channel, ApiToken>;

/// Adds the token to each call, if the sidecar asks for one.
#[derive(Clone, Debug)]
pub struct ApiToken(pub Option<MetadataValue<Ascii>>);

impl Interceptor for ApiToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert(TOKEN_HEADER, token.clone());
        }
        Ok(request)
    }
}
