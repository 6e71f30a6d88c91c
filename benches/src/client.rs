//! A client of the component protocol over a Unix socket.

use std::{
    io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use hyper_util::rt::TokioIo;
use leasehold_proto::components::{
    LockMode, LockRequest, LockResponse, LockStoreInitRequest, MetadataRequest, UnlockRequest,
    lock_store_client::LockStoreClient,
};
use leasehold_util::cork::Corked;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// How many bytes a connection may delay. daprd's gRPC library writes a request in
/// one piece, too; tonic alone writes its head first.
const REQUEST_BYTES_HELD_MAX: usize = 8 * 1024;

/// A connection over a Unix socket.
pub(crate) async fn over_socket(socket: &Path) -> Result<Channel> {
    let path = PathBuf::from(socket);
    over(move || UnixStream::connect(path.clone()))
        .await
        .with_context(|| format!("connecting to {}", socket.display()))
}

/// A connection over TCP.
pub(crate) async fn over_tcp(port: u16) -> Result<Channel> {
    let connect = move || async move {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    over(connect).await.with_context(|| format!("connecting to port {port}"))
}

async fn over<S, F>(connect: impl Fn() -> F + Send + 'static) -> Result<Channel>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
{
    let corked = service_fn(move |_| {
        let connecting = connect();
        async move {
            let stream = connecting.await?;
            io::Result::Ok(TokioIo::new(Corked::new(stream, REQUEST_BYTES_HELD_MAX)))
        }
    });
    Ok(Endpoint::from_static("http://localhost").connect_with_connector(corked).await?)
}

/// A lock client; clones share one connection.
#[derive(Clone)]
pub(crate) struct Client(LockStoreClient<Channel>);

impl Client {
    /// Connects, and initialises the unnamed instance.
    pub(crate) async fn connect(socket: &Path, properties: &[(&str, &str)]) -> Result<Self> {
        let mut client = LockStoreClient::new(over_socket(socket).await?);
        let properties =
            properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        client
            .init(LockStoreInitRequest { metadata: Some(MetadataRequest { properties }) })
            .await?;
        Ok(Self(client))
    }

    /// Takes a lock that must be free.
    pub(crate) async fn try_lock(&mut self, resource: &str) -> Result<LockResponse> {
        self.try_lock_for(resource, 30).await
    }

    /// Takes a lock that must be free, for some seconds.
    pub(crate) async fn try_lock_for(
        &mut self,
        resource: &str,
        seconds: i64,
    ) -> Result<LockResponse> {
        Ok(self.0.try_lock(request(resource, seconds)).await?.into_inner())
    }

    /// Waits for a lock.
    pub(crate) async fn lock(&mut self, resource: &str) -> Result<LockResponse> {
        Ok(self.0.lock(request(resource, 30)).await?.into_inner())
    }

    /// Takes a shared lock.
    pub(crate) async fn try_share(&mut self, resource: &str) -> Result<LockResponse> {
        Ok(self.0.try_lock(shared(resource)).await?.into_inner())
    }

    /// Waits for a shared lock.
    pub(crate) async fn share(&mut self, resource: &str) -> Result<LockResponse> {
        Ok(self.0.lock(shared(resource)).await?.into_inner())
    }

    /// Releases a lock.
    pub(crate) async fn unlock(&mut self, resource: &str, lock_id: String) -> Result<()> {
        let request =
            UnlockRequest { resource_id: resource.into(), lock_id, ..Default::default() };
        self.0.unlock(request).await?;
        Ok(())
    }
}

fn request(resource: &str, seconds: i64) -> LockRequest {
    LockRequest {
        resource_id: resource.into(),
        ttl: Some(prost_types::Duration { seconds, nanos: 0 }),
        ..Default::default()
    }
}

fn shared(resource: &str) -> LockRequest {
    LockRequest { mode: LockMode::Shared.into(), ..request(resource, 30) }
}
