//! Certificates for etcd and its clients.

use etcd_client::{Certificate, Identity, TlsOptions};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// A CA, and one certificate for servers and clients alike, as PEM.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The CA's certificate.
    pub ca: String,
    /// The certificate.
    pub cert: String,
    /// Its key.
    pub key: String,
}

impl Tls {
    /// Makes new ones, for loopback.
    pub fn generate() -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, "test CA");
        let ca_cert = ca.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(ca, ca_key);
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let cert = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        Self { ca: ca_cert.pem(), cert: cert.pem(), key: key.serialize_pem() }
    }

    pub(super) fn options(&self) -> TlsOptions {
        TlsOptions::new()
            .ca_certificate(Certificate::from_pem(&self.ca))
            .identity(Identity::from_pem(&self.cert, &self.key))
    }
}
