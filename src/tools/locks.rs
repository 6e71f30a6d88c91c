//! The calls, the same on a store of this process and on a sidecar.

use std::{collections::VecDeque, pin::Pin, time::Duration};

use futures_util::{Stream, StreamExt as _};
use leasehold_net::inspection::{ForcedBy, Inspector, Names};
use leasehold_proto::{
    locks::{self as pb, inspection_client::InspectionClient},
    sidecar::SidecarChannel,
};
use tokio::time::timeout;
use tonic::{Response, Status, async_trait};

use crate::ToolError;

/// How long a sidecar may take to answer a call.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// The resources of a page.
const PAGE_SIZE: i32 = 1000;

/// The events of a watch.
pub type Events = Pin<Box<dyn Stream<Item = Result<pb::LockEvent, ToolError>> + Send>>;

/// Inspects a store.
#[async_trait]
pub trait Locks: Send + Sync {
    /// Who holds a resource.
    async fn get(&self, asked: pb::GetLockRequest) -> Result<pb::GetLockResponse, ToolError>;
    /// A page of what is held.
    async fn list(
        &self,
        asked: pb::ListLocksRequest,
    ) -> Result<pb::ListLocksResponse, ToolError>;
    /// A page of who waits.
    async fn waiters(
        &self,
        asked: pb::ListWaitersRequest,
    ) -> Result<pb::ListWaitersResponse, ToolError>;
    /// Each change.
    async fn watch(&self, asked: pb::WatchLocksRequest) -> Result<Events, ToolError>;
    /// Ends grants.
    async fn end(&self, asked: pb::EndLocksRequest) -> Result<pb::EndLocksResponse, ToolError>;
}

/// A store that this process has opened.
#[async_trait]
impl<N: Names> Locks for Inspector<N> {
    async fn get(&self, asked: pb::GetLockRequest) -> Result<pb::GetLockResponse, ToolError> {
        Ok(Inspector::get(self, asked).await?)
    }

    async fn list(
        &self,
        asked: pb::ListLocksRequest,
    ) -> Result<pb::ListLocksResponse, ToolError> {
        Ok(Inspector::list(self, asked).await?)
    }

    async fn waiters(
        &self,
        asked: pb::ListWaitersRequest,
    ) -> Result<pb::ListWaitersResponse, ToolError> {
        Ok(Inspector::waiters(self, asked).await?)
    }

    async fn watch(&self, asked: pb::WatchLocksRequest) -> Result<Events, ToolError> {
        let events = Inspector::watch(self.clone(), asked)?;
        Ok(Box::pin(events.map(|event| event.map_err(ToolError::from))))
    }

    async fn end(&self, asked: pb::EndLocksRequest) -> Result<pb::EndLocksResponse, ToolError> {
        let by = ForcedBy {
            store_name: self.store_name.clone(),
            reason: asked.reason.clone(),
            ..ForcedBy::default()
        };
        Ok(Inspector::end(self.clone(), asked, by, |_, _| {}).await?)
    }
}

/// A store of a sidecar.
pub struct OfSidecar {
    client: InspectionClient<SidecarChannel>,
    store_name: String,
}

impl OfSidecar {
    /// The store of this name behind a sidecar's gRPC port.
    #[must_use]
    pub fn new(channel: SidecarChannel, store_name: String) -> Self {
        Self { client: InspectionClient::new(channel), store_name }
    }
}

/// The answer of a sidecar, which must not be waited for without end.
async fn answered<T>(
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, ToolError> {
    let answer = timeout(ANSWER_WITHIN, call).await.map_err(|_| {
        ToolError::unavailable(format!("the sidecar did not answer within {ANSWER_WITHIN:?}"))
    })?;
    Ok(answer?.into_inner())
}

#[async_trait]
impl Locks for OfSidecar {
    async fn get(
        &self,
        mut asked: pb::GetLockRequest,
    ) -> Result<pb::GetLockResponse, ToolError> {
        asked.store_name.clone_from(&self.store_name);
        answered(self.client.clone().get_lock(asked)).await
    }

    async fn list(
        &self,
        mut asked: pb::ListLocksRequest,
    ) -> Result<pb::ListLocksResponse, ToolError> {
        asked.store_name.clone_from(&self.store_name);
        answered(self.client.clone().list_locks(asked)).await
    }

    async fn waiters(
        &self,
        mut asked: pb::ListWaitersRequest,
    ) -> Result<pb::ListWaitersResponse, ToolError> {
        asked.store_name.clone_from(&self.store_name);
        answered(self.client.clone().list_waiters(asked)).await
    }

    async fn watch(&self, mut asked: pb::WatchLocksRequest) -> Result<Events, ToolError> {
        asked.store_name.clone_from(&self.store_name);
        let events = answered(self.client.clone().watch_locks(asked)).await?;
        Ok(Box::pin(events.map(|event| event.map_err(ToolError::from))))
    }

    async fn end(
        &self,
        mut asked: pb::EndLocksRequest,
    ) -> Result<pb::EndLocksResponse, ToolError> {
        asked.store_name.clone_from(&self.store_name);
        answered(self.client.clone().end_locks(asked)).await
    }
}

/// Reads a list page by page.
pub(crate) struct Pages<'a> {
    locks: &'a dyn Locks,
    asked: pb::ListLocksRequest,
    read: VecDeque<pb::LockState>,
    is_over: bool,
}

impl<'a> Pages<'a> {
    pub(crate) fn new(
        locks: &'a dyn Locks,
        scope: pb::LockScope,
        holder_prefix: String,
    ) -> Self {
        let asked = pb::ListLocksRequest {
            scope: Some(scope),
            holder_prefix,
            page_size: PAGE_SIZE,
            ..Default::default()
        };
        Self { locks, asked, read: VecDeque::new(), is_over: false }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<pb::LockState>, ToolError> {
        loop {
            if let Some(state) = self.read.pop_front() {
                return Ok(Some(state));
            }
            if self.is_over {
                return Ok(None);
            }
            let page = self.locks.list(self.asked.clone()).await?;
            self.is_over = page.next_page_token.is_empty();
            self.asked.page_token = page.next_page_token;
            self.read = page.locks.into();
        }
    }
}
