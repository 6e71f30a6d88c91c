//! A repeated request finds a lock that is held, or that is being given back.

use std::sync::atomic::Ordering;

use leasehold_held::{HeldError, HoldEnd, Known};
use leasehold_lock::{self as lock, RequestId, safe_deadline};

use super::*;

mod ends;

/// The API over one scripted store, its resource as the store has it.
struct Api {
    locks: Locks,
    store: Arc<NamedStore>,
    script: Arc<Script>,
}

impl Api {
    fn of(setup: &Setup) -> Self {
        let stores = Stores::default();
        let (_, script) = load(&stores);
        let store = stores.get("s").unwrap();
        Self { locks: Locks::new(stores, setup.engine.clone(), app()), store, script }
    }

    /// A repetition with another TTL, sent but not yet answered.
    fn send_again(&self, ttl: Duration) -> tokio::task::JoinHandle<()> {
        let (locks, call) = (self.locks.clone(), LockCall { ttl: Some(ttl), ..Self::call() });
        tokio::spawn(async move { drop(locks.acquire(call).await) })
    }

    fn call() -> LockCall {
        LockCall { request_id: RequestId::new("secret").unwrap(), ..call() }
    }

    /// A Lock without a stream, whose answer is written or not.
    async fn lock(&self, written: bool) -> Result<Granted, ApiError> {
        let acquired = self.locks.acquire(Self::call()).await?;
        let granted = acquired.granted.clone();
        let delivery = acquired.deliver();
        if written {
            delivery.accept();
        }
        Ok(granted)
    }

    /// A Lock whose stream ends at once, which releases it.
    async fn lock_by_stream(&self) -> Granted {
        let acquired = self.locks.acquire(Self::call()).await.unwrap();
        let granted = acquired.granted.clone();
        drop(acquired.hold_for_stream().unwrap());
        granted
    }

    async fn is_free(&self) -> bool {
        self.store
            .store()
            .try_lock(AcquireRequest::new("lock||r".parse().unwrap()))
            .await
            .is_ok()
    }
}

/// A replay that found a grant must not undo it.
/// Trap: sidecar 23
#[tokio::test(start_paused = true)]
async fn a_replay_whose_answer_is_not_written_leaves_the_lock_held_and_renewed() {
    let setup = setup();
    let api = Api::of(&setup);
    let first = api.lock(true).await.unwrap();
    let again = api.lock(false).await.unwrap();
    assert_eq!(first.lock_id, again.lock_id);
    sleep(TTL * 3).await;
    assert_eq!(setup.engine.held(), 1);
    assert!(!api.is_free().await, "the first caller holds it");
}

/// It may be held through another process or by nobody, so its TTL decides.
#[tokio::test(start_paused = true)]
async fn a_replay_that_nobody_received_of_a_lock_held_elsewhere_is_left_to_its_ttl() {
    let setup = setup();
    let api = Api::of(&setup);
    let request = AcquireRequest {
        ttl: Some(TTL),
        request_id: RequestId::new("secret").unwrap(),
        ..AcquireRequest::new("lock||r".parse().unwrap())
    };
    api.store.store().try_lock(request).await.unwrap().receipt.accept();
    api.lock(false).await.unwrap();
    assert_eq!(setup.engine.held(), 0, "nobody is known to hold it here");
    sleep(TTL / 2).await;
    assert!(!api.is_free().await);
    sleep(TTL).await;
    assert!(api.is_free().await, "it is not renewed");
}

/// The release names the attempt, and so spares what a replay has claimed since.
/// Trap: sidecar 23
#[tokio::test(start_paused = true)]
async fn a_replay_keeps_a_grant_that_was_about_to_be_released() {
    let setup = setup();
    let api = Api::of(&setup);
    api.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
    let first = api.lock_by_stream().await;
    settle().await;
    let again = api.lock(true).await.unwrap();
    assert_eq!(again.token, first.token);
    sleep(TTL * 3).await;
    assert_eq!(setup.engine.held(), 1);
    assert!(!api.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_cannot_await_the_release_says_so_in_time() {
    let setup = setup();
    let api = Api::of(&setup);
    for _ in 0..1000 {
        api.script.on_unlock(Fault::Unreachable);
    }
    api.lock_by_stream().await;
    let asked = Instant::now();
    let refused = api.lock(true).await.unwrap_err();
    assert!(matches!(refused, ApiError::Lock(LockError::OutcomeUnknown(_))), "{refused:?}");
    assert!(asked.elapsed() <= Duration::from_secs(6));
}

/// The backend may end the grant as early as the replay asks.
/// Trap: sidecar 50
#[tokio::test(start_paused = true)]
async fn a_replay_with_a_shorter_ttl_shortens_the_belief_when_it_is_sent() {
    const SHORT: Duration = Duration::from_secs(1);
    let mut setup = setup();
    let api = Api::of(&setup);
    api.lock(true).await.unwrap();
    api.script.on_every_renewal(Some(Fault::Unreachable));
    api.script.on_try(Fault::ReplyDelayed(Duration::from_secs(4)));
    let sent = lock::Instant::now();
    let again = api.send_again(SHORT);
    setup.notices.recv().await.unwrap();
    assert!(lock::Instant::now() <= safe_deadline(sent, SHORT) + Duration::from_millis(1));
    assert!(!api.is_free().await, "reported before the backend expires it");
    again.abort();
}

/// The answer of a replay is received after a later renewal.
/// Trap: sidecar 50
#[tokio::test(start_paused = true)]
async fn a_replay_that_a_later_renewal_superseded_does_not_lengthen_the_belief() {
    const SHORT: Duration = Duration::from_secs(1);
    let mut setup = setup();
    let api = Api::of(&setup);
    let first = api.lock(true).await.unwrap();
    let replay = api.locks.acquire(Api::call()).await.unwrap();
    settle().await;
    let sent = lock::Instant::now();
    let id = first.lock_id.clone();
    let resource = api.locks.resource("s", &"r".parse().unwrap()).unwrap();
    setup.engine.renew(&resource, id, Some(SHORT), Change::Nothing).await.unwrap();
    api.script.on_every_renewal(Some(Fault::Unreachable));
    let (_guard, ended) = replay.hold_for_stream().unwrap();
    ended.await.unwrap();
    assert!(lock::Instant::now() <= safe_deadline(sent, SHORT) + Duration::from_millis(1));
    assert!(setup.notices.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn another_request_for_the_lock_leaves_its_holders_belief_alone() {
    let mut setup = setup();
    let api = Api::of(&setup);
    let first = api.lock(true).await.unwrap();
    api.script.on_every_renewal(Some(Fault::Unreachable));
    let ttl = Some(Duration::from_secs(1));
    let other = LockCall { ttl, request_id: RequestId::new("another").unwrap(), ..Api::call() };
    api.locks.acquire(other).await.unwrap_err();
    setup.notices.recv().await.unwrap();
    assert_eq!(lock::Instant::now(), safe_deadline(first.since, TTL));
}

/// The store may carry out the shorter request last.
/// Trap: sidecar 50
#[tokio::test(start_paused = true)]
async fn no_renewal_lengthens_the_belief_beyond_a_shorter_request_sent_since() {
    let shortly = Fault::ReplyDelayed(Duration::from_secs(2));
    let at_once = Fault::Delayed(Duration::ZERO);
    for (renewals, replay) in [
        // The renewal is sent again after the request, which arrives after it.
        ([Fault::Silent, at_once], Fault::Delayed(Duration::from_secs(4))),
        // The renewal is answered after the request was carried out.
        ([shortly, Fault::Unreachable], Fault::ReplyDelayed(TTL)),
    ] {
        let mut setup = setup();
        let api = Api::of(&setup);
        let call = LockCall { ttl: Some(Duration::from_secs(12)), ..Api::call() };
        api.locks.acquire(call).await.unwrap().deliver().accept();
        api.script.on_every_renewal(Some(Fault::Unreachable));
        for fault in renewals {
            api.script.on_renewal(fault);
        }
        while api.script.renewals.load(Ordering::SeqCst) == 0 {
            settle().await;
        }
        sleep(Duration::from_secs(1)).await;
        api.script.on_try(replay);
        let _again = api.send_again(Duration::from_secs(6));
        setup.notices.recv().await.unwrap();
        assert!(!api.is_free().await, "{renewals:?}");
    }
}

/// The release spares what the replay claimed, so nothing else would end it.
/// The answer of the earlier request came last, and its stream took the lock over.
#[tokio::test(start_paused = true)]
async fn an_earlier_request_that_is_answered_last_does_not_take_the_lock_over() {
    let setup = setup();
    let api = Api::of(&setup);
    let first = api.locks.acquire(Api::call()).await.unwrap();
    sleep(Duration::from_millis(1)).await;
    let again = api.locks.acquire(Api::call()).await.unwrap();
    let _again = again.hold_for_stream().unwrap();
    let (guard, mut ended) = first.hold_for_stream().unwrap();
    assert_eq!(ended.try_recv(), Ok(HoldEnd::Superseded));
    drop(guard);
    sleep(TTL).await;
    assert!(!api.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn a_replay_answered_while_the_lock_is_released_holds_it() {
    let mut setup = setup();
    let api = Api::of(&setup);
    let (stream, _) = api.locks.acquire(Api::call()).await.unwrap().hold_for_stream().unwrap();
    let again = api.locks.acquire(Api::call()).await.unwrap();
    api.script.on_unlock(Fault::Delayed(Duration::from_secs(1)));
    drop(stream);
    settle().await;
    again.deliver().accept();
    sleep(TTL * 3).await;
    assert!(setup.notices.try_recv().is_err());
    assert!(setup.engine.held() == 1 && !api.is_free().await);
}

/// As without a stream, the lock stays with the caller that received it first.
/// Trap: sidecar 23
#[tokio::test(start_paused = true)]
async fn a_replay_by_a_stream_that_nobody_read_leaves_the_lock_held_and_renewed() {
    use leasehold_proto::locks::{LockRequest, locks_server};
    let setup = setup();
    let api = Api::of(&setup);
    api.lock(true).await.unwrap();
    let replay = LockRequest {
        store_name: "s".into(),
        resource_id: "r".into(),
        request_id: "secret".into(),
        ..Default::default()
    };
    let stream = locks_server::Locks::lock_stream(&api.locks, tonic::Request::new(replay));
    let stream = stream.await.unwrap();
    settle().await;
    drop(stream);
    sleep(TTL * 3).await;
    assert_eq!(setup.engine.held(), 1);
    assert!(!api.is_free().await, "the first caller holds it");
}

/// They waited together, and the lock was not held yet when the stream began to wait.
/// Trap: sidecar 23
#[tokio::test(start_paused = true)]
async fn a_joined_stream_that_nobody_read_leaves_the_lock_to_the_other_caller() {
    use leasehold_proto::locks::{LockRequest, locks_server};
    for (stream_first, at_once) in [(true, true), (true, false), (false, true), (false, false)]
    {
        let setup = setup();
        let api = Api::of(&setup);
        let request = AcquireRequest::new("lock||r".parse().unwrap());
        let holder = api.store.store().try_lock(request).await.unwrap();
        let open = async || {
            let request = tonic::Request::new(LockRequest {
                store_name: "s".into(),
                resource_id: "r".into(),
                request_id: "secret".into(),
                ..Default::default()
            });
            let stream = locks_server::Locks::lock_stream(&api.locks, request).await.unwrap();
            settle().await;
            stream
        };
        let mut stream = None;
        if stream_first {
            stream = Some(open().await);
        }
        let locks = api.locks.clone();
        let waiting = tokio::spawn(async move {
            let call = LockCall { immediate: false, ..Api::call() };
            let acquired = locks.acquire(call).await.unwrap();
            if !at_once {
                settle().await;
            }
            acquired.deliver().accept();
        });
        settle().await;
        if !stream_first {
            stream = Some(open().await);
        }
        drop(holder);
        waiting.await.unwrap();
        settle().await;
        drop(stream);
        sleep(TTL * 3).await;
        assert_eq!(setup.engine.held(), 1, "{stream_first} {at_once}");
        assert!(!api.is_free().await, "{stream_first} {at_once}: it was answered");
    }
}
