//! Many shared grants of one resource, held through one process.

use leasehold_lock::{AttemptId, RequestId, UnlockRequest};

use super::*;
use crate::Cause;

const READERS: usize = 50;

impl Setup {
    async fn acquire_as(&self, mode: Mode) -> Granted {
        let request = AcquireRequest {
            ttl: Some(TTL),
            mode,
            ..AcquireRequest::new("r".parse().unwrap())
        };
        let granted = self.store.store().try_lock(request).await.unwrap();
        granted.receipt.accept();
        granted
    }

    fn holding_as(&self, mode: Mode, granted: &Granted) -> Holding {
        Holding { mode, ..self.holding("r", granted) }
    }

    async fn hold_readers(&self, count: usize) -> Vec<LockId> {
        let mut lock_ids = Vec::with_capacity(count);
        for _ in 0..count {
            let granted = self.acquire_as(Mode::Shared).await;
            self.keep(self.holding_as(Mode::Shared, &granted));
            lock_ids.push(granted.lock_id);
        }
        lock_ids
    }
}

#[tokio::test(start_paused = true)]
async fn each_reader_is_renewed_by_itself() {
    let mut setup = setup();
    let lock_ids = setup.hold_readers(READERS).await;
    sleep(TTL * 3).await;
    assert!(setup.notices.try_recv().is_err());
    assert_eq!(setup.engine.held(), READERS);
    for lock_id in lock_ids {
        setup.unlock("r", lock_id).await.unwrap();
    }
    assert!(setup.is_free("r").await);
    assert_eq!(setup.engine.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_unlocks_leaves_the_others_held() {
    let setup = setup();
    let mut lock_ids = setup.hold_readers(3).await;
    // The first of a name is kept apart from the others.
    for nth in [0, 1] {
        setup.unlock("r", lock_ids.remove(nth)).await.unwrap();
    }
    lock_ids.extend(setup.hold_readers(2).await);
    sleep(TTL * 2).await;
    assert_eq!(setup.engine.held(), 3);
    for lock_id in lock_ids {
        assert!(setup.renew("r", lock_id.clone(), None).await.is_ok());
        setup.unlock("r", lock_id).await.unwrap();
    }
    assert!(setup.is_free("r").await);
}

/// Trap: sidecar 59
#[tokio::test(start_paused = true)]
async fn the_loss_of_one_reader_is_reported_to_it_alone() {
    let mut setup = setup();
    let lock_ids = setup.hold_readers(3).await;
    let ended = UnlockRequest::owner("r".parse().unwrap(), lock_ids[1].clone());
    setup.store.store().unlock(ended).await.unwrap();
    let lost = setup.notices.recv().await.unwrap();
    assert_eq!((&lost.lock_id, lost.cause), (&lock_ids[1], Cause::Forced));
    sleep(TTL * 2).await;
    assert!(setup.notices.try_recv().is_err());
    assert_eq!(setup.engine.held(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_force_through_this_process_is_reported_to_all_readers_at_once() {
    let mut setup = setup();
    let lock_ids = setup.hold_readers(READERS).await;
    setup.force("r").await.unwrap();
    let mut lost_ids = Vec::new();
    while let Ok(lost) = setup.notices.try_recv() {
        assert_eq!(lost.cause, Cause::Forced);
        lost_ids.push(lost.lock_id);
    }
    assert_eq!(lost_ids, lock_ids);
    assert!(setup.is_free("r").await);
    assert_eq!(setup.engine.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_later_exclusive_grant_means_that_all_readers_are_lost() {
    let mut setup = setup();
    setup.hold_readers(3).await;
    let force = UnlockRequest::force("r".parse().unwrap());
    setup.store.store().unlock(force).await.unwrap();
    let writer = setup.hold("r").await;
    for _ in 0..3 {
        assert_eq!(setup.notices.try_recv().unwrap().cause, Cause::Forced);
    }
    assert_eq!(setup.engine.held(), 1);
    setup.unlock("r", writer.lock_id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_later_shared_grant_means_that_the_exclusive_one_is_lost() {
    let mut setup = setup();
    let writer = setup.hold("r").await;
    let force = UnlockRequest::force("r".parse().unwrap());
    setup.store.store().unlock(force).await.unwrap();
    setup.hold_readers(2).await;
    assert_eq!(setup.notices.try_recv().unwrap().lock_id, writer.lock_id);
    assert_eq!(setup.engine.held(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_shared_grant_that_comes_after_a_later_exclusive_one_is_lost() {
    let mut setup = setup();
    let late = setup.acquire_as(Mode::Shared).await;
    let force = UnlockRequest::force("r".parse().unwrap());
    setup.store.store().unlock(force).await.unwrap();
    setup.hold("r").await;
    setup.keep(setup.holding_as(Mode::Shared, &late));
    assert_eq!(setup.notices.try_recv().unwrap().lock_id, late.lock_id);
    assert_eq!(setup.engine.held(), 1);
}

#[tokio::test(start_paused = true)]
async fn shared_grants_may_come_in_any_order_of_their_tokens() {
    let mut setup = setup();
    let first = setup.acquire_as(Mode::Shared).await;
    setup.hold_readers(1).await;
    setup.keep(setup.holding_as(Mode::Shared, &first));
    assert!(setup.notices.try_recv().is_err());
    assert_eq!(setup.engine.held(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_finds_its_own_among_many_readers() {
    let setup = setup();
    let request_id = |nth: usize| RequestId::new(&format!("request {nth}")).unwrap();
    for nth in 0..READERS {
        let granted = setup.acquire_as(Mode::Shared).await;
        let holding = setup.holding_as(Mode::Shared, &granted);
        setup.keep(Holding { request_id: request_id(nth), ..holding });
    }
    // A repetition with so short a TTL may end its own grant, and no other, early.
    let short = Duration::from_secs(1);
    let attempt = AttemptId::random();
    let id = request_id(READERS / 2).unwrap();
    let unknown = RequestId::new("unknown").unwrap().unwrap();
    let _in_flight = [id.clone(), unknown]
        .map(|id| setup.engine.begin(setup.resource("r"), id, short, attempt));
    let table = setup.engine.table();
    let ends = |held: &crate::record::Record| held.schedule.belief.safe_deadline();
    let shortened = table
        .of_resource(&setup.resource("r"))
        .filter(|(_, held)| ends(held) <= Instant::now() + short)
        .map(|(_, held)| held.holding.request_id.clone())
        .collect::<Vec<_>>();
    drop(table);
    assert_eq!(shortened, [Some(id)]);
}

#[tokio::test(start_paused = true)]
async fn a_replay_may_give_a_reader_another_request_id() {
    let setup = setup();
    setup.hold_readers(1).await;
    let granted = setup.acquire_as(Mode::Shared).await;
    let as_request = |id: &str| Holding {
        request_id: RequestId::new(id).unwrap(),
        ..setup.holding_as(Mode::Shared, &granted)
    };
    setup.keep(as_request("first"));
    setup.keep(as_request("second"));
    let find = |id: &str| {
        let id = RequestId::new(id).unwrap().unwrap();
        setup.engine.table().find_request(&(setup.resource("r"), id.clone()))
    };
    assert!(find("second").is_some());
    assert_eq!(find("first"), None);
    setup.unlock("r", granted.lock_id).await.unwrap();
    assert_eq!(find("second"), None);
    assert_eq!(setup.engine.held(), 1);
}
