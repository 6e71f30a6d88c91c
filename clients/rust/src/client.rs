//! The calls of the sidecar that this crate makes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

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
    /// One more than the number of the last connection that has not answered.
    silent: AtomicU64,
}

/// A connection, past or present.
#[derive(Clone, Debug)]
struct Link {
    number: u64,
    channel: Channel,
}

/// What the sidecar answered about a lock.
pub(crate) enum Answer {
    /// It is valid for this long, counted from the sending of the question.
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
        let connection = Arc::new(Connection { address, current, silent: AtomicU64::new(0) });
        Self { link, connection, store, api_token }
    }

    /// The client with the connection for new calls, which replaces one that has not answered. Calls
    /// that are open on the old one stay there, and the last of them closes it. The caller's channel
    /// is kept.
    pub(crate) fn current(&self) -> Self {
        let Connection { address, current, silent } = &*self.connection;
        let next = silent.load(Ordering::Acquire);
        current.send_if_modified(|current| {
            let channel = address.as_ref().filter(|_| current.number < next);
            let Some(Ok(channel)) = channel.map(Address::connect) else { return false };
            *current = Link { number: next, channel };
            true
        });
        Self { link: current.borrow().clone(), ..self.clone() }
    }

    /// This connection has not answered.
    pub(crate) fn fall_silent(&self) {
        self.connection.silent.fetch_max(self.link.number + 1, Ordering::AcqRel);
    }

    /// The connection that new calls use, unless it has not answered.
    pub(crate) fn channel(&self) -> Channel {
        self.connection.current.borrow().channel.clone()
    }

    /// Where the sidecar is, unless the channel is the caller's.
    pub(crate) fn address(&self) -> Option<&str> {
        self.connection.address.as_ref().map(|address| &*address.text)
    }

    fn calls(&self) -> LocksClient<Channel> {
        LocksClient::new(self.link.channel.clone())
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
