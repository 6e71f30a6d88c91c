//! The protocol between the sidecar and the app.

use clap::ValueEnum;

/// What the app speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AppProtocol {
    /// HTTP/1.
    Http,
    /// HTTP/2 without TLS.
    H2c,
    /// HTTP/1 over TLS; the app's certificate is not checked.
    Https,
    /// gRPC.
    Grpc,
    /// gRPC over TLS; the app's certificate is not checked.
    Grpcs,
}

impl AppProtocol {
    /// The same protocol over TLS, where it has such a form.
    pub(crate) fn with_tls(self) -> Self {
        match self {
            Self::Http => Self::Https,
            Self::Grpc => Self::Grpcs,
            other => other,
        }
    }

    /// Whether the app is called by gRPC, or else by HTTP.
    pub fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::Grpcs)
    }

    /// Whether the connection is encrypted.
    pub(super) fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Grpcs)
    }

    /// Whether it is HTTP/2 from the first byte.
    pub(super) fn is_http2(self) -> bool {
        !matches!(self, Self::Http | Self::Https)
    }
}
