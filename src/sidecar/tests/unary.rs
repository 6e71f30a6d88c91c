//! A Lock without a stream: answered before its caller gives up, and not
//! renewed for ever.

use leasehold_proto::locks::{LockRequest, LockResponse, locks_server};
use tonic::{Request, Response, Status};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// The API over one scripted store.
struct Api {
    locks: Locks,
    store: Arc<NamedStore>,
    script: Arc<Script>,
}

fn api(setup: &Setup) -> Api {
    api_with(setup, |_| {})
}

fn api_with(setup: &Setup, adjust: impl FnOnce(&mut leasehold_lock::Settings)) -> Api {
    let stores = Stores::default();
    let (backend, script, mut settings) = Scripted::new(Memory::new);
    adjust(&mut settings);
    let store = Store::new(Arc::new(backend), settings);
    stores.insert(named("s", store));
    let store = stores.get("s").unwrap();
    let locks = Locks::new(stores, setup.engine.clone(), app());
    Api { locks: locks.with_max_hold_default(Some(HOUR)), store, script }
}

fn request() -> LockRequest {
    LockRequest { store_name: "s".into(), resource_id: "r".into(), ..LockRequest::default() }
}

impl Api {
    /// A Lock over gRPC with this deadline.
    async fn lock_within(
        &self,
        deadline: Duration,
        request: LockRequest,
    ) -> Result<Response<LockResponse>, Status> {
        let mut request = Request::new(request);
        request.set_timeout(deadline);
        locks_server::Locks::lock(&self.locks, request).await
    }

    /// A Lock without a stream, whose answer is received.
    async fn lock(&self, call: LockCall) -> Granted {
        let acquired = self.locks.lock(call).await.unwrap();
        let granted = acquired.granted.clone();
        acquired.deliver().accept();
        granted
    }

    async fn hold(&self) -> Granted {
        let request = AcquireRequest {
            ttl: Some(HOUR),
            ..AcquireRequest::new("lock||r".parse().unwrap())
        };
        self.store.store().try_lock(request).await.unwrap()
    }

    async fn is_free(&self) -> bool {
        self.is_free_for(TTL).await
    }

    async fn is_free_for(&self, ttl: Duration) -> bool {
        let request = AcquireRequest {
            ttl: Some(ttl),
            ..AcquireRequest::new("lock||r".parse().unwrap())
        };
        match self.store.store().try_lock(request).await {
            Ok(_) => true,
            Err(LockError::Locked { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

/// An answer that arrives as the caller gives up counts as written: the lock
/// was then renewed without a holder.
/// Trap: sidecar 49
#[tokio::test(start_paused = true)]
async fn a_lock_is_answered_a_quarter_of_its_time_before_the_deadline() {
    for (deadline_ms, answered_by_ms) in
        [(20, 10), (100, 75), (700, 525), (1_000, 750), (10_000, 9_750), (60_000, 59_750)]
    {
        for request_id in ["", "secret"] {
            let setup = setup();
            let api = api(&setup);
            let _held = api.hold().await;
            let begun = leasehold_lock::Instant::now();
            let wait = LockRequest { request_id: request_id.into(), ..request() };
            let deadline = Duration::from_millis(deadline_ms);
            let ended = api.lock_within(deadline, wait).await.unwrap_err();
            assert_eq!(ended.code(), tonic::Code::DeadlineExceeded);
            assert!(ms(begun) <= answered_by_ms, "{} of {deadline_ms} ms", ms(begun));
            assert!(ms(begun) + 2 >= answered_by_ms, "{} of {deadline_ms} ms", ms(begun));
        }
    }
}

/// Trap: sidecar 49
#[tokio::test(start_paused = true)]
async fn a_try_that_is_granted_too_late_for_its_deadline_is_given_back() {
    let setup = setup();
    let api = api(&setup);
    api.script.on_try(Fault::ReplyDelayed(Duration::from_millis(90)));
    let begun = leasehold_lock::Instant::now();
    let immediate = LockRequest { immediate: true, ..request() };
    let ended = api.lock_within(Duration::from_millis(100), immediate).await;
    assert!(ms(begun) <= 76, "answered after {} ms", ms(begun));
    assert_eq!(ended.unwrap_err().code(), tonic::Code::Unknown);
    sleep(Duration::from_secs(1)).await;
    assert!(api.is_free().await && setup.engine.held() == 0);
}

fn call() -> LockCall {
    LockCall { request_id: leasehold_lock::RequestId::new("secret").unwrap(), ..super::call() }
}

/// Trap: sidecar 49
#[tokio::test(start_paused = true)]
async fn a_lock_that_nothing_else_ends_is_released_after_the_default_max_hold() {
    let mut setup = setup();
    let api = api(&setup);
    let granted = api.lock(call()).await;
    let lost = setup.notices.recv().await.unwrap();
    assert_eq!((lost.lock_id, lost.cause), (granted.lock_id, Cause::MaxHold));
    assert_eq!(granted.since.elapsed(), HOUR);
    settle().await;
    assert!(api.is_free().await);
}

/// Trap: sidecar 49
#[tokio::test(start_paused = true)]
async fn a_replay_does_not_start_max_hold_again() {
    for max_hold in [None, Some(HOUR)] {
        let mut setup = setup();
        let api = api(&setup);
        let granted = api.lock(LockCall { max_hold, ..call() }).await;
        sleep(HOUR / 2).await;
        let again = api.lock(LockCall { max_hold, ..call() }).await;
        assert_eq!(again.lock_id, granted.lock_id);
        setup.notices.recv().await.unwrap();
        assert_eq!(granted.since.elapsed(), HOUR);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_has_no_default_max_hold() {
    let mut setup = setup();
    let api = api(&setup);
    api.lock(call()).await;
    // A stream ends the lock when its client is gone, also after a takeover.
    let (_guard, mut ended) =
        api.locks.acquire(call()).await.unwrap().hold_for_stream().unwrap();
    sleep(HOUR * 3).await;
    assert!(ended.try_recv().is_err() && setup.notices.try_recv().is_err());
    assert_eq!(setup.engine.held(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_does_not_hold_a_grant_that_is_over() {
    let setup = setup();
    let api = api(&setup);
    let acquired = api.locks.acquire(call()).await.unwrap();
    sleep(acquired.granted.ttl - acquired.granted.ttl / 20).await;
    assert!(!api.is_free().await);
    assert!(matches!(acquired.hold_for_stream(), Err(LockError::OutcomeUnknown(_))));
    sleep(Duration::from_millis(1)).await;
    assert!(api.is_free().await);
    assert_eq!(setup.engine.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_apps_max_hold_comes_before_the_default() {
    let mut setup = setup();
    let api = api(&setup);
    let granted = api.lock(LockCall { max_hold: Some(HOUR * 2), ..call() }).await;
    assert_eq!(setup.notices.recv().await.unwrap().cause, Cause::MaxHold);
    assert_eq!(granted.since.elapsed(), HOUR * 2);
}

/// The granted TTL may lie above `maxTTL` by its rounding; a renewal that asked
/// for that was refused, and the lock was lost as unreachable.
#[tokio::test(start_paused = true)]
async fn a_lock_whose_granted_ttl_is_rounded_up_past_the_maximum_is_renewed() {
    for asked_ms in [1_000, 2_500] {
        let ttl = Duration::from_millis(asked_ms);
        let mut setup = setup();
        let api = api_with(&setup, |settings| settings.ttl_max = ttl);
        api.script.round_ttls_up_to(Duration::from_secs(2));
        let granted = api.lock(LockCall { ttl: Some(ttl), ..call() }).await;
        assert!(granted.ttl > ttl);
        sleep(TTL).await;
        assert!(setup.notices.try_recv().is_err());
        assert!(!api.is_free_for(ttl).await);
    }
}
