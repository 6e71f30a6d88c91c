//! The calls of the sidecar that this crate makes.

use std::{sync::Arc, time::Duration};

use tonic::{
    Request, Status, Streaming,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

use crate::{
    Cause,
    held::Held,
    options::from_wire,
    raw::{self, locks_client::LocksClient},
};

const TOKEN: &str = "dapr-api-token";

/// A store of a sidecar.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) channel: Channel,
    /// Unless the channel is the caller's.
    pub(crate) address: Option<Arc<str>>,
    pub(crate) store: Arc<str>,
    pub(crate) api_token: Option<MetadataValue<Ascii>>,
}

/// What the sidecar answered about a lock.
pub(crate) enum Answer {
    /// The app may believe in it for so long, counted from the sending of the question.
    ValidFor(Duration),
    Lost(Cause),
}

impl Client {
    fn calls(&self) -> LocksClient<Channel> {
        LocksClient::new(self.channel.clone())
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
