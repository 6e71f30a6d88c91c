//! The calls of the Inspection service.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, bail};
use leasehold_proto::locks::{
    EndLocksRequest, EndLocksResponse, GetLockRequest, GetLockResponse, ListLocksRequest,
    ListLocksResponse, ListWaitersRequest, ListWaitersResponse, LockEvent, LockScope,
    LockState, WatchLocksRequest, inspection_client::InspectionClient,
};
use tokio::time::{Instant, timeout_at};
use tonic::Streaming;

use crate::{
    answer::{Answer, Rejection},
    connection::{Connection, Http},
    expect::Expect as _,
    store::{ANSWER_MAX, Store},
    words::Accepted,
};

/// How long a change may take to be reported. Backends that poll take two seconds.
const REPORTED_WITHIN: Duration = Duration::from_secs(10);

/// The names that begin with `prefix`.
pub(crate) fn scope(prefix: &str) -> LockScope {
    LockScope { prefix: prefix.to_owned(), ..LockScope::default() }
}

impl Store {
    pub(crate) async fn get_lock(&self, resource: &str) -> Answer<GetLockResponse> {
        let resource_id = resource.to_owned();
        self.get_lock_raw(GetLockRequest { resource_id, ..GetLockRequest::default() }).await
    }

    pub(crate) async fn get_lock_raw(&self, asked: GetLockRequest) -> Answer<GetLockResponse> {
        let request = self.request(asked);
        self.answer(self.inspection().get_lock(request), ANSWER_MAX).await
    }

    pub(crate) async fn list_raw(&self, asked: ListLocksRequest) -> Answer<ListLocksResponse> {
        let request = self.request(asked);
        self.answer(self.inspection().list_locks(request), ANSWER_MAX).await
    }

    /// Every lock whose name begins with `prefix`, by name, read in pages of this size.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        page_size: i32,
    ) -> anyhow::Result<BTreeMap<String, LockState>> {
        let mut locks = BTreeMap::new();
        let mut asked = ListLocksRequest {
            scope: Some(scope(prefix)),
            page_size,
            ..ListLocksRequest::default()
        };
        loop {
            let page = self.list_raw(asked.clone()).await.or_fail("ListLocks")?;
            let most = usize::try_from(page_size).unwrap_or(0);
            if page.locks.len() > most {
                bail!("a page of {} locks, asked for {most}", page.locks.len());
            }
            locks.extend(page.locks.into_iter().map(|lock| (lock.resource_id.clone(), lock)));
            asked.page_token = page.next_page_token;
            if asked.page_token.is_empty() {
                return Ok(locks);
            }
        }
    }

    pub(crate) async fn waiters_raw(
        &self,
        asked: ListWaitersRequest,
    ) -> Answer<ListWaitersResponse> {
        let request = self.request(asked);
        self.answer(self.inspection().list_waiters(request), ANSWER_MAX).await
    }

    pub(crate) async fn end_raw(&self, asked: EndLocksRequest) -> Answer<EndLocksResponse> {
        let request = self.request(asked);
        self.answer(self.inspection().end_locks(request), ANSWER_MAX).await
    }

    pub(crate) async fn watch_raw(&self, asked: WatchLocksRequest) -> Answer<Watcher> {
        let request = self.request(asked);
        let events = self.answer(self.inspection().watch_locks(request), ANSWER_MAX).await?;
        Ok(Watcher { events, locks: BTreeMap::new() })
    }

    /// Watches the names that begin with `prefix`, and reads until all states are reported.
    pub(crate) async fn watch(&self, prefix: &str) -> anyhow::Result<Watcher> {
        let asked =
            WatchLocksRequest { scope: Some(scope(prefix)), ..WatchLocksRequest::default() };
        let mut watcher = self.watch_raw(asked).await.or_fail("WatchLocks")?;
        watcher.until("that all states are reported", |event, _| event.synced).await?;
        Ok(watcher)
    }

    fn inspection(&self) -> InspectionClient<Http> {
        InspectionClient::with_origin(self.connection().http(), Connection::origin())
    }
}

/// A watch, and the locks that are held according to its events.
pub(crate) struct Watcher {
    events: Streaming<LockEvent>,
    pub(crate) locks: BTreeMap<String, LockState>,
}

impl Watcher {
    /// Reads events until one is wanted, and returns it. `what` describes the wanted event.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        is_wanted: impl Fn(&LockEvent, &BTreeMap<String, LockState>) -> bool,
    ) -> anyhow::Result<LockEvent> {
        let deadline = Instant::now() + REPORTED_WITHIN;
        loop {
            let event = timeout_at(deadline, self.events.message()).await;
            let event = event.with_context(|| format!("the watch did not report {what}"))?;
            let event = event.map_err(|status| Rejection::answered(status, Default::default()));
            let event = event.or_fail("the watch")?.context("the watch ended by itself")?;
            self.fold(&event);
            if is_wanted(&event, &self.locks) {
                return Ok(event);
            }
        }
    }

    /// Reads until the grants of the resource are as wanted.
    pub(crate) async fn until_state(
        &mut self,
        resource: &str,
        what: &str,
        is_wanted: impl Fn(&LockState) -> bool,
    ) -> anyhow::Result<LockEvent> {
        self.until(what, |event, _| {
            let state = event.state.as_ref();
            state.is_some_and(|state| state.resource_id == resource && is_wanted(state))
        })
        .await
    }

    fn fold(&mut self, event: &LockEvent) {
        if event.restarted {
            self.locks.clear();
        }
        let Some(state) = &event.state else { return };
        if state.grants.is_empty() {
            self.locks.remove(&state.resource_id);
        } else {
            self.locks.insert(state.resource_id.clone(), state.clone());
        }
    }
}

macro_rules! accepted {
    ($($message:ty),*) => {$(
        impl Accepted for $message {
            fn describe(&self) -> String {
                format!("{self:?}")
            }
        }
    )*};
}

accepted!(GetLockResponse, ListLocksResponse, ListWaitersResponse, EndLocksResponse);

impl Accepted for Watcher {
    fn describe(&self) -> String {
        "a watch".to_owned()
    }
}
