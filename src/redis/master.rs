//! A server that is or was the master, and connections to it.

use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, PushInfo, RedisError,
    aio::MultiplexedConnection,
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
}

impl Master {
    /// Its address.
    pub(super) fn address(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }

    /// Whether both are at the same address.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.address() == other.address()
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
