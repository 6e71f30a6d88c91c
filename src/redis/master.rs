//! A server that is or was the master, and connections to it.

use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ProtocolVersion, PushInfo, RedisError,
    aio::MultiplexedConnection, cmd,
};

use super::{
    library::{IN_CLUSTER, LIBRARY, Library},
    notice::NOBODYS_CHANNEL,
};

/// How many requests may be queued for the socket before their senders are delayed.
const REQUESTS_AHEAD: usize = 1024;

/// A server that was the master when that was asked.
#[derive(Clone)]
pub(super) struct Master {
    /// How to connect to it.
    pub(super) client: Client,
    /// How many notices of Sentinels had come before they were asked.
    pub(super) notices: u64,
    /// Whether it is to be a node of a Cluster.
    pub(super) in_cluster: bool,
}

impl Master {
    /// A server at a fixed address.
    pub(super) fn alone(client: &Client) -> Self {
        Self { client: client.clone(), notices: 0, in_cluster: false }
    }

    /// Its address.
    pub(super) fn address(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }

    /// The library that it runs.
    pub(super) fn library(&self) -> &'static Library {
        if self.in_cluster { &IN_CLUSTER } else { &LIBRARY }
    }

    /// Whether both are at the same address.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

/// The address of another server that is reached as this one is, with TLS or without.
pub(super) fn address_like(like: &ConnectionAddr, host: String, port: u16) -> ConnectionAddr {
    match like {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// Opens a connection. `pushed` gets what the server sends unasked.
pub(super) async fn connect(
    client: &Client,
    pushed: impl Fn(PushInfo) + Send + Sync + 'static,
) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(REQUESTS_AHEAD)
        .set_push_sender(move |push| {
            pushed(push);
            Ok::<_, ()>(())
        });
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Whether what answers there does not know `SUBSCRIBE`, as some proxies. They know no `HELLO`
/// either, so this is asked in RESP2. An unknown command may also end the connection. What does
/// not answer a `PING` first is not judged: a balancer without a server ends each connection.
pub(super) async fn is_deaf(client: &Client) -> Result<bool, RedisError> {
    let info = client.get_connection_info();
    let settings = info.redis_settings().clone();
    let settings = settings.set_protocol(ProtocolVersion::RESP2).set_db(0);
    let client = Client::open(info.clone().set_redis_settings(settings))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    cmd("PING").exec_async(&mut connection).await?;
    match cmd("SUBSCRIBE").arg(NOBODYS_CHANNEL).exec_async(&mut connection).await {
        Ok(()) => Ok(false),
        Err(error) if error.code() == Some("ERR") || error.is_connection_dropped() => Ok(true),
        Err(error) => Err(error),
    }
}
