//! TLS of a front.

use std::sync::Arc;

use leasehold_testkit::etcd::Tls;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    client::{Client, Value, ok, request},
    stage::{Backend, Setup, Stage},
};

/// A front with a certificate, which asks for certificates of `clients` if there is one.
async fn stage(server: &Tls, clients: Option<&Tls>) -> Stage {
    let ca = clients.map(|clients| clients.ca.clone());
    let tls = Some((server.cert.clone(), server.key.clone(), ca));
    Stage::with(Backend::Memory, Setup { tls, unix_socket: true, ..Setup::default() }).await
}

/// Connects with trust in `server`, and with the certificate of `own`.
async fn connect(
    stage: &Stage,
    server: &Tls,
    own: Option<&Tls>,
) -> std::io::Result<Client<TlsStream<TcpStream>>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server.ca.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = vec![CertificateDer::from_pem_slice(own.cert.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let tcp = TcpStream::connect(stage.address).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
    Ok(Client::over(stream))
}

#[tokio::test]
async fn a_client_that_trusts_the_certificate_takes_locks() {
    let server = Tls::generate();
    let stage = stage(&server, None).await;
    let mut client = connect(&stage, &server, None).await.unwrap();
    assert_eq!(client.take("k", "v").await, ok());
}

#[tokio::test]
async fn a_client_that_trusts_another_authority_does_not_connect() {
    let stage = stage(&Tls::generate(), None).await;
    assert!(connect(&stage, &Tls::generate(), None).await.is_err());
}

#[tokio::test]
async fn a_client_with_a_certificate_of_the_authority_is_served() {
    let (server, clients) = (Tls::generate(), Tls::generate());
    let stage = stage(&server, Some(&clients)).await;
    let mut client = connect(&stage, &server, Some(&clients)).await.unwrap();
    assert_eq!(client.take("k", "v").await, ok());
}

/// Asserts that a client is not served. With TLS 1.3 it may learn that only with its first
/// reply.
async fn is_not_served(stage: &Stage, server: &Tls, own: Option<&Tls>) {
    if let Ok(mut client) = connect(stage, server, own).await {
        let reply = client.try_ask(&["SET", "k", "v", "NX", "PX", "60000"]).await;
        assert!(reply.is_err(), "{reply:?}");
    }
    assert_eq!(stage.look("k").await.lock.grants, []);
}

#[tokio::test]
async fn a_client_without_a_certificate_is_not_served() {
    let (server, clients) = (Tls::generate(), Tls::generate());
    let stage = stage(&server, Some(&clients)).await;
    is_not_served(&stage, &server, None).await;
}

#[tokio::test]
async fn a_client_with_a_certificate_of_another_authority_is_not_served() {
    let (server, clients) = (Tls::generate(), Tls::generate());
    let stage = stage(&server, Some(&clients)).await;
    is_not_served(&stage, &server, Some(&Tls::generate())).await;
}

#[tokio::test]
async fn a_client_without_tls_is_not_served() {
    let stage = stage(&Tls::generate(), None).await;
    let mut client = stage.client().await;
    client.send(&request(&["SET", "k", "v", "NX", "PX", "60000"])).await;
    let reply = client.ended().await;
    assert!(!reply.starts_with('+'), "{reply:?}");
    assert!(stage.look("k").await.lock.grants.is_empty());
}

#[tokio::test]
async fn the_socket_needs_no_tls() {
    let stage = stage(&Tls::generate(), None).await;
    let mut client = Client::over(UnixStream::connect(stage.unix_socket()).await.unwrap());
    assert_eq!(client.ask(&["PING"]).await, Value::Simple("PONG".into()));
}

/// A client that closes its connection without a TLS close_notify is like one that closes it
/// without TLS: it has read its replies.
#[tokio::test]
async fn a_lock_is_not_found_after_a_close_without_its_notice() {
    let server = Tls::generate();
    let stage = stage(&server, None).await;
    let mut client = connect(&stage, &server, None).await.unwrap();
    assert_eq!(client.take("k", "v").await, ok());
    drop(client);
    let mut again = connect(&stage, &server, None).await.unwrap();
    again.settle().await;
    assert_eq!(again.take("k", "v").await, Value::Null);
}
