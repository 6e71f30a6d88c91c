//! The app's channel: where the app listens, and the HTTP client that calls it
//! there, for callbacks and health probes.

use std::{net::IpAddr, sync::Arc, time::Duration};

use http::{Uri, uri::PathAndQuery};
use http_body::Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use super::protocol::AppProtocol;
use crate::{api::auth::Token, usage::UsageError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the app listens, and what it speaks there.
#[derive(Clone, Debug)]
pub struct AppChannel {
    /// `host:port`.
    pub authority: String,
    /// What it speaks.
    pub protocol: AppProtocol,
    /// Sent along with every callback (`APP_API_TOKEN`).
    pub token: Token,
}

/// A client that calls the app.
pub(crate) type AppClient<B> = Client<HttpsConnector<HttpConnector>, B>;

impl AppChannel {
    /// The app at this address and port.
    #[must_use]
    pub fn new(address: &str, port: u16, protocol: AppProtocol, token: Token) -> Self {
        let authority = match address.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
            _ => format!("{address}:{port}"),
        };
        Self { authority, protocol, token }
    }

    /// Checks the app's address.
    pub fn check(&self) -> Result<(), UsageError> {
        self.url(PathAndQuery::from_static("/")).map(drop)
    }

    /// The URL of a path of the app.
    pub(crate) fn url(&self, path: PathAndQuery) -> Result<Uri, UsageError> {
        let scheme = if self.protocol.is_tls() { "https" } else { "http" };
        let url = Uri::builder().scheme(scheme).authority(&*self.authority);
        url.path_and_query(path).build().map_err(|_| {
            UsageError(format!(
                "{:?} is no address of an app; see --app-channel-address and --app-port",
                self.authority
            ))
        })
    }

    /// A client that speaks the app's protocol. It opens a connection for each call: calls
    /// are few, and a kept connection may have died unnoticed.
    pub(crate) fn client<B>(&self) -> Result<AppClient<B>, UsageError>
    where
        B: Body<Data: Send> + Send,
    {
        let mut tcp = HttpConnector::new();
        // The scheme https is handled by the TLS connector.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(trusting()?).https_or_http();
        let is_http2 = self.protocol.is_http2();
        let connector = if is_http2 {
            connector.enable_http2().wrap_connector(tcp)
        } else {
            connector.enable_http1().wrap_connector(tcp)
        };
        Ok(Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .http2_only(is_http2)
            .build(connector))
    }
}

/// TLS 1.2 or later, without a check of the app's certificate: daprd does not
/// check it either, because the app runs beside it, mostly with a self-signed
/// certificate.
fn trusting() -> Result<ClientConfig, UsageError> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            UsageError(format!("--app-protocol needs TLS, which could not be set up: {error}"))
        })?;
    Ok(config
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth())
}

/// Accepts every certificate if the peer has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
