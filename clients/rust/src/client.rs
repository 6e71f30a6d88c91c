//! The calls of the sidecar that this crate makes.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use tonic::{
    Request, Status, Streaming,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

use crate::{
    Cause,
    address::Address,
    held::Held,
    options::from_wire,
    raw::{self, locks_client::LocksClient},
};

const TOKEN: &str = "dapr-api-token";

/// A store of a sidecar. A clone uses the same connection.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    link: Link,
    connection: Arc<Connection>,
    pub(crate) store: Arc<str>,
    pub(crate) api_token: Option<MetadataValue<Ascii>>,
}

/// How the sidecar is reached.
#[derive(Debug)]
struct Connection {
    /// Unless the channel is the caller's.
    address: Option<Address>,
    current: watch::Sender<Link>,
}

/// One of the connections that there were.
#[derive(Clone, Debug)]
struct Link {
    number: u64,
    channel: Channel,
}

/// What the sidecar answered about a lock.
pub(crate) enum Answer {
    /// The app may believe in it for so long, counted from the sending of the question.
    ValidFor(Duration),
    Lost(Cause),
}

impl Client {
    /// `address` is where the channel leads, unless it is the caller's.
    pub(crate) fn new(
        channel: Channel,
        address: Option<Address>,
        store: Arc<str>,
        api_token: Option<MetadataValue<Ascii>>,
    ) -> Self {
        let link = Link { number: 0, channel };
        let current = watch::Sender::new(link.clone());
        Self { link, connection: Arc::new(Connection { address, current }), store, api_token }
    }

    /// The client with the connection that new calls use.
    pub(crate) fn current(&self) -> Self {
        Self { link: self.connection.current.borrow().clone(), ..self.clone() }
    }

    /// Lets new calls use another connection than this one, which has not answered. Those that are
    /// open on it go on, and the last of them closes it. A channel of the caller's is kept.
    pub(crate) fn replace(&self) {
        let Some(address) = &self.connection.address else { return };
        self.connection.current.send_if_modified(|current| {
            if current.number != self.link.number {
                return false;
            }
            let Ok(channel) = address.connect() else { return false };
            *current = Link { number: current.number + 1, channel };
            true
        });
    }

    pub(crate) fn channel(&self) -> Channel {
        self.link.channel.clone()
    }

    /// Where the sidecar is, unless the channel is the caller's.
    pub(crate) fn address(&self) -> Option<&str> {
        self.connection.address.as_ref().map(|address| &*address.text)
    }

    fn calls(&self) -> LocksClient<Channel> {
        LocksClient::new(self.channel())
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.api_token {
            request.metadata_mut().insert(TOKEN, token.clone());
        }
        request
    }

    pub(crate) async fn open(
        &self,
        request: raw::LockRequest,
    ) -> Result<Streaming<raw::LockServerStream>, Status> {
        Ok(self.calls().lock_stream(self.request(request)).await?.into_inner())
    }

    pub(crate) async fn check(&self, held: &Held) -> Result<Answer, Status> {
        let lock = raw::LockRef {
            store_name: self.store.to_string(),
            resource_id: held.grant.resource.clone(),
            lock_id: held.grant.lock_id.clone(),
            namespace: held.grant.namespace.clone(),
        };
        let question = self.request(raw::CheckLocksRequest { locks: vec![lock] });
        let answer = self.calls().check_locks(question).await?.into_inner();
        let Some(check) = answer.locks.into_iter().next() else {
            return Err(Status::internal("the sidecar did not answer about the lock"));
        };
        Ok(match check.valid_for {
            Some(valid_for) => Answer::ValidFor(from_wire(Some(valid_for))),
            None => Answer::Lost(Cause::of_sidecar(&check.cause)),
        })
    }

    pub(crate) async fn unlock(&self, held: &Held) -> Result<(), Status> {
        let request = self.request(raw::UnlockRequest {
            resource_id: held.grant.resource.clone(),
            lock_id: held.grant.lock_id.clone(),
            store_name: self.store.to_string(),
            namespace: held.grant.namespace.clone(),
        });
        self.calls().unlock(request).await.map(drop)
    }
}
