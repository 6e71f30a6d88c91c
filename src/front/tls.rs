//! TLS of a front.

use std::{path::Path, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

/// TLS with these files. The error names the option.
pub(super) fn acceptor(
    cert: &Path,
    key: &Path,
    client_authority: Option<&Path>,
) -> Result<TlsAcceptor, String> {
    let wrong = |what: &str, file: &Path, why: &dyn std::fmt::Display| {
        format!("--tls-{what} {}: {why}", file.display())
    };
    let chain = certificates(cert).map_err(|why| wrong("cert", cert, &why))?;
    let private =
        PrivateKeyDer::from_pem_file(key).map_err(|error| wrong("key", key, &error))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match client_authority {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let verifier = client_verifier(file, provider);
            let verifier = verifier.map_err(|why| wrong("client-ca", file, &why))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(chain, private);
    let config = config.map_err(|error| wrong("cert", cert, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn client_verifier(
    file: &Path,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| error.to_string())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).map_err(|error| error.to_string())?;
    let read: Result<Vec<_>, _> = read.collect();
    let read = read.map_err(|error| error.to_string())?;
    if read.is_empty() { Err("has no certificate".to_owned()) } else { Ok(read) }
}
