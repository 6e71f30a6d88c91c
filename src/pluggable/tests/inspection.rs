//! Inspection of stores of other processes: of our own component, and of one with
//! scripted answers, whatever the request is.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::{Stream, StreamExt as _, stream};
use leasehold_lock::{
    AcquireRequest, GrantId, LockError, ReleaseOf, Store, UnlockRequest,
    inspect::{
        EndCause, EndOf, EndRequest, Ended, Listing, PageRequest, Scope, Watch, WatchEvent,
    },
};
use leasehold_proto::locks::{self as pb, inspection_server::Inspection};
use tokio::time::{Duration, advance, pause, resume, timeout};
use tonic::{Code, Request, Response, Status};

use crate::{
    fake::Fake,
    force,
    ours::{open, request, serve},
    unlock,
};

pub(crate) const DECLARED: [&str; 3] = ["FORCE_UNLOCK", "INSPECTION", "WATCH"];
pub(crate) const ID: &str = "0123456789abcdef0123456789abcdef";

/// The scripted answers of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inspected {
    locks: Vec<pb::LockState>,
    next_page_token: String,
    events: Vec<pb::LockEvent>,
    /// The events of the watches after the first one, where they differ.
    later_events: Option<Vec<pb::LockEvent>>,
    /// Whether there was a watch before: the first one ends.
    watched: Arc<AtomicBool>,
    refuses_watches: bool,
    end: Option<Code>,
    /// The requests to end grants.
    asked: Arc<Mutex<Vec<pb::EndLocksRequest>>>,
}

impl Inspected {
    pub(crate) fn with(locks: Vec<pb::LockState>) -> Self {
        Self { locks, ..Self::default() }
    }
}

#[tonic::async_trait]
impl Inspection for Inspected {
    type WatchLocksStream = Pin<Box<dyn Stream<Item = Result<pb::LockEvent, Status>> + Send>>;

    async fn get_lock(
        &self,
        _: Request<pb::GetLockRequest>,
    ) -> Result<Response<pb::GetLockResponse>, Status> {
        let lock = self.locks.first().cloned();
        Ok(Response::new(pb::GetLockResponse { lock, ..Default::default() }))
    }

    async fn list_locks(
        &self,
        _: Request<pb::ListLocksRequest>,
    ) -> Result<Response<pb::ListLocksResponse>, Status> {
        let (locks, next_page_token) = (self.locks.clone(), self.next_page_token.clone());
        Ok(Response::new(pb::ListLocksResponse { locks, next_page_token }))
    }

    async fn list_waiters(
        &self,
        _: Request<pb::ListWaitersRequest>,
    ) -> Result<Response<pb::ListWaitersResponse>, Status> {
        Err(Status::unimplemented("it keeps no queue"))
    }

    async fn watch_locks(
        &self,
        _: Request<pb::WatchLocksRequest>,
    ) -> Result<Response<Self::WatchLocksStream>, Status> {
        if self.refuses_watches {
            return Err(Status::unimplemented("no watches here"));
        }
        let again = self.watched.swap(true, Ordering::Relaxed);
        let events = self.later_events.as_ref().filter(|_| again).unwrap_or(&self.events);
        let events = stream::iter(events.clone().into_iter().map(Ok));
        if again || self.later_events.is_some() {
            return Ok(Response::new(Box::pin(events.chain(stream::pending()))));
        }
        Ok(Response::new(Box::pin(events)))
    }

    async fn end_locks(
        &self,
        request: Request<pb::EndLocksRequest>,
    ) -> Result<Response<pb::EndLocksResponse>, Status> {
        let asked = request.into_inner();
        let ended = self.locks.iter().filter(|lock| lock.resource_id == asked.resource_id);
        let ended = ended.cloned().collect();
        self.asked.lock().unwrap().push(asked);
        match self.end {
            Some(code) => Err(Status::new(code, "scripted refusal")),
            None => Ok(Response::new(pb::EndLocksResponse { ended, more: false })),
        }
    }
}

fn state(name: &str, grant_id: &str) -> pb::LockState {
    let grants = vec![pb::GrantInfo { grant_id: grant_id.into(), ..Default::default() }];
    pb::LockState { resource_id: name.into(), grants, grants_total: 1, ..Default::default() }
}

fn listing(prefix: &str) -> Listing {
    Listing {
        scope: Scope::prefix(prefix),
        holder_prefix: String::new(),
        page: PageRequest::first(10),
    }
}

pub(crate) async fn end(store: &Store, of: EndOf, limit: usize) -> Result<Ended, LockError> {
    store.end(&EndRequest { of, dry_run: false, limit }, &|_, _, _| {}).await
}

async fn next(watch: &mut Watch) -> WatchEvent {
    timeout(Duration::from_secs(10), watch.next()).await.unwrap().unwrap()
}

#[tokio::test]
async fn our_component_is_inspected_through_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    let _serving = serve(folder.path()).await;
    let store = open(folder.path()).await;
    let granted = store.try_lock(request()).await.unwrap();
    granted.receipt.accept();
    let resource = "r".parse().unwrap();
    let found = store.get(&resource, &PageRequest::first(10)).await.unwrap();
    let grant = &found.lock.grants[0];
    assert_eq!((grant.id, found.waiters), (granted.id, 0));
    assert!(granted.id.is_some() && grant.remaining.is_some() && grant.holder.is_some());
    let listed = store.list(&listing("")).await.unwrap().items;
    assert_eq!((&listed[0].resource, listed[0].grants[0].id), (&resource, granted.id));
    assert!(store.list(&listing("s")).await.unwrap().items.is_empty());
    let waiters = store.waiters(&resource, &PageRequest::first(10)).await.unwrap();
    assert!(waiters.items.is_empty());
}

#[tokio::test]
async fn a_watch_through_the_socket_reports_each_change() {
    let folder = tempfile::tempdir().unwrap();
    let _serving = serve(folder.path()).await;
    let store = open(folder.path()).await;
    let granted = store.try_lock(request()).await.unwrap();
    granted.receipt.accept();
    let mut watch = store.watch(Scope::prefix("")).unwrap();
    let WatchEvent::Changed { lock, .. } = next(&mut watch).await else { panic!("no state") };
    assert_eq!(lock.grants[0].id, granted.id);
    assert_eq!(next(&mut watch).await, WatchEvent::Synced);
    unlock(&store, "r", granted.lock_id.as_str()).await.unwrap();
    let WatchEvent::Changed { lock, ended } = next(&mut watch).await else {
        panic!("no change")
    };
    assert_eq!((lock.grants_total, ended[0].cause), (0, EndCause::Released));
}

#[tokio::test]
async fn a_grant_is_ended_through_the_socket_and_never_its_successor() {
    let folder = tempfile::tempdir().unwrap();
    let _serving = serve(folder.path()).await;
    let store = open(folder.path()).await;
    let before = store.try_lock(request()).await.unwrap();
    before.receipt.accept();
    let end_before = || UnlockRequest {
        resource: "r".parse().unwrap(),
        of: ReleaseOf::Id(before.id.unwrap()),
    };
    store.unlock(end_before()).await.unwrap();
    let gone = store.unlock(end_before()).await;
    assert_eq!(gone, Err(LockError::NotFound { held: false }));
    let after = store.try_lock(request()).await.unwrap();
    after.receipt.accept();
    assert_eq!(store.unlock(end_before()).await, Err(LockError::NotFound { held: true }));
    let ended =
        end(&store, EndOf::Resource("r".parse().unwrap(), after.id), 100).await.unwrap();
    assert_eq!(ended.locks[0].grants[0].id, after.id);
    assert_eq!(force(&store, "r").await, Err(LockError::NotFound { held: false }));
}

#[tokio::test]
async fn a_store_that_declares_nothing_cannot_be_inspected() {
    // WATCH needs INSPECTION.
    for declared in [&[][..], &["WATCH"]] {
        let mut fake = Fake::inspected(declared, Inspected::default()).await;
        let store = fake.open(&[]).await;
        let resource = "r".parse().unwrap();
        let got = store.get(&resource, &PageRequest::first(10)).await;
        assert!(matches!(got, Err(LockError::Unsupported(_))), "{got:?}");
        let listed = store.list(&listing("")).await;
        assert!(matches!(listed, Err(LockError::Unsupported(_))), "{listed:?}");
        let watched = store.watch(Scope::prefix("")).map(|_| ());
        assert!(matches!(watched, Err(LockError::Unsupported(_))), "{watched:?}");
        let of = ReleaseOf::Id(GrantId::from_u128(1));
        let ended = store.unlock(UnlockRequest { resource, of }).await;
        assert!(matches!(ended, Err(LockError::Unsupported(_))), "{ended:?}");
    }
}

#[tokio::test]
async fn a_call_that_a_store_does_not_have_is_unsupported() {
    let mut fake = Fake::inspected(&DECLARED, Inspected::default()).await;
    let store = fake.open(&[]).await;
    let waiters = store.waiters(&"r".parse().unwrap(), &PageRequest::first(10)).await;
    let Err(LockError::Unsupported(why)) = waiters else { panic!("{waiters:?}") };
    assert!(why.contains("it keeps no queue"), "{why}");
}

#[tokio::test]
async fn a_store_that_ignores_the_scope_is_filtered() {
    let inspected = Inspected {
        locks: vec![state("other", ID), state("own/a", ID), state("own/b", "")],
        ..Default::default()
    };
    let mut fake = Fake::inspected(&DECLARED, inspected).await;
    let store = fake.open(&[]).await;
    let listed = store.list(&listing("own/")).await.unwrap().items;
    let names: Vec<_> = listed.iter().map(|lock| lock.resource.as_str()).collect();
    assert_eq!(names, ["own/a"], "what has no public ID is not leasehold's");
}

#[tokio::test]
async fn a_scope_is_ended_one_by_one_and_never_handed_on() {
    let inspected = Inspected {
        locks: vec![state("other", ID), state("own/a", ID), state("own/b", ID)],
        ..Default::default()
    };
    let asked = Arc::clone(&inspected.asked);
    let mut fake = Fake::inspected(&DECLARED, inspected).await;
    let store = fake.open(&[]).await;
    let of = EndOf::Scope { scope: Scope::prefix("own/"), holder_prefix: String::new() };
    let ended = end(&store, of, 100).await.unwrap();
    assert_eq!((ended.locks.len(), ended.more), (2, false));
    let asked = asked.lock().unwrap();
    let expected = ["own/a", "own/b"].map(|name| pb::EndLocksRequest {
        resource_id: name.into(),
        grant_id: ID.into(),
        ..Default::default()
    });
    assert_eq!(*asked, expected);
}

#[tokio::test]
async fn an_end_of_nothing_is_not_found() {
    for end in [None, Some(Code::NotFound)] {
        let inspected =
            Inspected { locks: vec![state("other", ID)], end, ..Default::default() };
        let mut fake = Fake::inspected(&DECLARED, inspected).await;
        let store = fake.open(&[]).await;
        let of = ReleaseOf::Id(ID.parse().unwrap());
        let ended = store.unlock(UnlockRequest { resource: "r".parse().unwrap(), of }).await;
        assert_eq!(ended, Err(LockError::NotFound { held: false }));
    }
}

#[tokio::test]
async fn an_end_of_another_grant_than_the_one_asked_for_is_not_believed() {
    let inspected = Inspected { locks: vec![state("r", ID)], ..Default::default() };
    let mut fake = Fake::inspected(&DECLARED, inspected).await;
    let store = fake.open(&[]).await;
    let of = ReleaseOf::Id(GrantId::from_u128(1));
    let ended = store.unlock(UnlockRequest { resource: "r".parse().unwrap(), of }).await;
    assert_eq!(ended, Err(LockError::NotFound { held: false }));
}

#[tokio::test]
async fn a_page_token_that_is_too_long_is_refused() {
    let inspected = Inspected { next_page_token: "x".repeat(1537), ..Default::default() };
    let mut fake = Fake::inspected(&DECLARED, inspected).await;
    let listed = fake.open(&[]).await.list(&listing("")).await;
    assert!(matches!(listed, Err(LockError::StoreUnavailable(_))), "{listed:?}");
}

#[tokio::test]
async fn a_watch_that_ends_is_begun_again() {
    let inspected = Inspected {
        events: vec![
            pb::LockEvent { state: Some(state("r", ID)), ..Default::default() },
            pb::LockEvent { synced: true, ..Default::default() },
        ],
        ..Default::default()
    };
    let mut fake = Fake::inspected(&DECLARED, inspected).await;
    let store = fake.open(&[]).await;
    let mut watch = store.watch(Scope::prefix("")).unwrap();
    while next(&mut watch).await != WatchEvent::Restarted {}
    let WatchEvent::Changed { lock, .. } = next(&mut watch).await else { panic!("no state") };
    assert_eq!(lock.resource.as_str(), "r");
}

/// Late events of an earlier watch do not show what is held now.
#[tokio::test]
async fn a_second_watch_is_synced_only_once_all_held_locks_were_reported() {
    let synced = || pb::LockEvent { synced: true, ..Default::default() };
    let held = |name| pb::LockEvent { state: Some(state(name, ID)), ..Default::default() };
    let inspected = Inspected {
        events: vec![held("freed meanwhile"), synced(), synced()],
        later_events: Some(vec![held("locked meanwhile"), synced()]),
        ..Default::default()
    };
    let mut fake = Fake::inspected(&DECLARED, inspected).await;
    let store = fake.open(&[]).await;
    let mut first = store.watch(Scope::prefix("")).unwrap();
    while next(&mut first).await != WatchEvent::Synced {}
    let mut second = store.watch(Scope::prefix("")).unwrap();
    let mut names = Vec::new();
    loop {
        match next(&mut second).await {
            WatchEvent::Changed { lock, .. } if lock.grants.is_empty() => {
                names.retain(|name| *name != lock.resource);
            }
            WatchEvent::Changed { lock, .. } => names.push(lock.resource),
            event => {
                assert_eq!(event, WatchEvent::Synced);
                break;
            }
        }
    }
    assert_eq!(names, ["locked meanwhile".parse().unwrap()]);
}

#[tokio::test]
async fn a_watch_that_is_silent_for_half_a_minute_is_begun_again() {
    let inspected = Inspected {
        events: vec![pb::LockEvent { synced: true, ..Default::default() }],
        // It continues without another event.
        watched: Arc::new(true.into()),
        ..Default::default()
    };
    let mut fake = Fake::inspected(&DECLARED, inspected).await;
    let store = fake.open(&[]).await;
    let mut watch = store.watch(Scope::prefix("")).unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Synced);
    pause();
    advance(Duration::from_secs(31)).await;
    resume();
    let restarted = async { while next(&mut watch).await != WatchEvent::Restarted {} };
    assert!(timeout(Duration::from_secs(5), restarted).await.is_ok());
}

#[tokio::test]
async fn a_watch_that_the_store_refuses_ends() {
    let inspected = Inspected { refuses_watches: true, ..Default::default() };
    let mut fake = Fake::inspected(&DECLARED, inspected).await;
    let store = fake.open(&[]).await;
    let mut watch = store.watch(Scope::prefix("")).unwrap();
    let event = timeout(Duration::from_secs(10), watch.next()).await.unwrap();
    assert!(matches!(event, Err(LockError::Unsupported(_))), "{event:?}");
}

#[tokio::test]
async fn a_grant_has_the_public_id_that_the_store_reports() {
    use crate::fake::Reaction;
    let mut fake = Fake::start(&[]).await;
    let store = fake.open(&[]).await;
    for (reported, expected) in [(ID, ID.parse().ok()), ("", None), ("bad", None)] {
        let response = leasehold_proto::components::LockResponse {
            grant_id: reported.into(),
            ..Default::default()
        };
        fake.instruct(Reaction::Grant(response));
        let granted = store.try_lock(AcquireRequest::new("r".parse().unwrap())).await.unwrap();
        granted.receipt.accept();
        assert_eq!(granted.id, expected);
    }
}
