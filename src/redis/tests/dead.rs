//! Waiters whose process has died, or stands still.

use std::collections::BTreeSet;

use super::{places::calls_made, vanished::names, *};

/// A process that stands still: [`freeze`] subscribes to its channel.
pub(super) const FROZEN: &str = "ffffffffffffffffffffffffffffffff";

/// Subscribes like a process that then stands still.
pub(super) fn freeze(server: &RedisServer) -> redis::Connection {
    freeze_as(server, FROZEN)
}

/// Like [`freeze`], for a process with this name.
pub(super) fn freeze_as(server: &RedisServer, process: &str) -> redis::Connection {
    let mut connection = server.connect();
    let _: redis::Value = ask(&mut connection, &["SUBSCRIBE", &format!("\x01n{process}")]);
    connection
}

/// The resource `r`, held through a store.
struct HeldResource {
    server: RedisServer,
    connection: redis::Connection,
    store: Store,
    granted: Granted,
}

impl HeldResource {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(properties: &[(&str, &str)]) -> Self {
        Self::on(RedisServer::start(), properties).await
    }

    async fn on(server: RedisServer, properties: &[(&str, &str)]) -> Self {
        let store = open_with(&server, properties).await;
        let granted = take(&store, "r", MINUTE).await;
        Self { connection: server.connect(), server, store, granted }
    }

    /// One whose session counts a notice that reaches nobody as a death.
    async fn with_an_old_session() -> Self {
        let held = Self::new().await;
        reunited().await;
        held
    }

    fn put_places(&mut self, process: &str, count: usize) {
        put_places(&mut self.connection, "r", process, count);
    }

    fn waiting(&mut self) -> usize {
        waiting(&mut self.connection, "r")
    }

    /// A waiter that has its place at the end of the queue.
    async fn live_waiter(
        &mut self,
        store: &Store,
    ) -> tokio::task::JoinHandle<Result<Granted, LockError>> {
        let length = self.waiting() + 1;
        let live = wait(store, "r", MINUTE);
        until("queued", || self.waiting() == length).await;
        live
    }

    async fn unlock(&self) {
        self.store.unlock(unlock(&self.granted, "r")).await.unwrap();
    }

    /// A live waiter behind the places that there are is served soon after the
    /// resource is released, though it was handed over to one of these places.
    async fn serves_a_live_waiter_after_one_lapse(mut self) {
        let store = self.store.clone();
        let live = self.live_waiter(&store).await;
        let queue = key('q', "r");
        let last: [String; 1] = ask(&mut self.connection, &["ZRANGE", &queue, "-1", "-1"]);
        self.unlock().await;
        let mut called = BTreeSet::new();
        in_few_lapses(async {
            while !live.is_finished() {
                let value: Option<String> = ask(&mut self.connection, &["GET", "r"]);
                let place =
                    value.and_then(|value| Some(value.strip_prefix('\x01')?.to_owned()));
                called.extend(place.filter(|place| *place != last[0]));
                tokio::time::sleep(SECOND / 100).await;
            }
            live.await.unwrap().unwrap();
        })
        .await;
        assert!(called.len() <= 1, "{called:?}");
    }
}

/// Trap: redis 10
#[tokio::test]
async fn a_dead_waiter_is_passed_over() {
    let mut held = HeldResource::with_an_old_session().await;
    for process in ["a", "b", "c", "d"] {
        held.put_places(&process.repeat(32), 10);
    }
    let store = held.store.clone();
    let live = held.live_waiter(&store).await;
    held.unlock().await;
    let answered = leasehold_lock::Instant::now();
    let granted = soon(live).await.unwrap().unwrap();
    assert!(granted.since < answered, "it was granted later");
}

/// Trap: redis 10
#[tokio::test]
async fn dead_waiters_cost_one_lapse_while_others_may_be_reconnecting() {
    let mut held = HeldResource::new().await;
    for process in names(MANY) {
        held.put_places(&process, 10);
    }
    held.serves_a_live_waiter_after_one_lapse().await;
}

/// Trap: redis 43
#[tokio::test]
async fn ten_thousand_dead_waiters_are_passed_over_in_time() {
    let mut held = HeldResource::with(&[("maxWaiters", "20000")]).await;
    held.put_places(&"d".repeat(32), 10_000);
    held.serves_a_live_waiter_after_one_lapse().await;
}

/// Trap: redis 10
#[tokio::test]
async fn a_waiter_that_hears_but_never_confirms_is_passed_over() {
    let mut held = HeldResource::new().await;
    let _frozen = freeze(&held.server);
    held.put_places(FROZEN, MANY);
    held.serves_a_live_waiter_after_one_lapse().await;
}

/// Trap: redis 41
#[tokio::test]
async fn all_places_of_a_silent_process_cost_one_lapse() {
    let mut held = HeldResource::new().await;
    let _frozen = freeze(&held.server);
    let store = held.store.clone();
    let mut live = Vec::new();
    for _ in 0..MANY {
        held.put_places(FROZEN, 1);
        live.push(held.live_waiter(&store).await);
    }
    held.unlock().await;
    in_few_lapses(async {
        for waiter in live {
            let granted = waiter.await.unwrap().unwrap();
            store.unlock(unlock(&granted, "r")).await.unwrap();
        }
    })
    .await;
    let asked: i64 = ask(&mut held.connection, &["EXISTS", &key('a', "r")]);
    assert_eq!(asked, 0, "its other places were dropped by a question only");
}

#[tokio::test]
async fn a_silent_waiter_is_passed_over_also_when_the_releaser_has_gone() {
    let mut held = HeldResource::new().await;
    let store = open(&held.server).await;
    let _frozen = freeze(&held.server);
    held.put_places(FROZEN, 1);
    let live = held.live_waiter(&store).await;
    let () = ask(&mut held.connection, &["CONFIG", "RESETSTAT"]);
    // From then on it expects nothing before the grant's end.
    until("the waiter's first look", || {
        let stats: String = ask(&mut held.connection, &["INFO", "commandstats"]);
        stats.contains("cmdstat_pttl")
    })
    .await;
    held.unlock().await;
    held.store.retire().await;
    in_few_lapses(live).await.unwrap().unwrap();
}

/// Trap: redis 41
#[tokio::test]
async fn a_call_for_an_unknown_attempt_is_passed_on_at_once() {
    let mut held = HeldResource::new().await;
    let own = processes(&mut held.connection);
    // Processes that have a forgotten place.
    let mut forgetful = Vec::new();
    for _ in 0..MANY {
        forgetful.push(open(&held.server).await);
    }
    let all = processes(&mut held.connection);
    for process in all.iter().filter(|name| !own.contains(name)) {
        held.put_places(process, 1);
    }
    let store = held.store.clone();
    let live = held.live_waiter(&store).await;
    // They wait, so that they answer the question who is alive, and keep that place.
    let behind: Vec<_> = forgetful.iter().map(|there| wait(there, "r", MINUTE)).collect();
    until("queued", || held.waiting() == 2 * MANY + 1).await;
    held.unlock().await;
    // Otherwise each place would cost a lapse of 2 s.
    in_few_lapses(live).await.unwrap().unwrap();
    drop(behind);
}

/// Such a try was refused once, also long after the last waiter had died.
/// Trap: redis 43
#[tokio::test]
async fn a_try_takes_what_only_dead_processes_wait_for() {
    let server = RedisServer::start();
    let store = open(&server).await;
    reunited().await;
    put_places(&mut server.connect(), "r", &"d".repeat(32), 20);
    store.try_lock(request("r", MINUTE)).await.unwrap().receipt.accept();
}

#[tokio::test]
async fn a_try_of_a_free_lock_serves_the_process_that_waits_for_it() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let _frozen = freeze(&server);
    put_places(&mut connection, "r", FROZEN, 1);
    let refused = store.try_lock(request("r", MINUTE)).await;
    assert!(matches!(refused, Err(LockError::Locked { .. })), "{refused:?}");
    let holder: String = ask(&mut connection, &["GET", "r"]);
    assert!(holder.contains(FROZEN), "{holder:?}");
}

/// Trap: redis 43
#[tokio::test]
async fn dead_places_do_not_fill_a_queue() {
    let mut held = HeldResource::with(&[("maxWaiters", "2")]).await;
    reunited().await;
    held.put_places(&"d".repeat(32), 2);
    let live = wait(&held.store, "r", MINUTE);
    until("queued, and the dead dropped", || held.waiting() == 1).await;
    live.abort();
}

/// `PUBLISH` counts who listens by a pattern: with a monitoring client each dead
/// process counted as alive, and cost a lapse of 2 s.
/// Trap: redis 10
#[tokio::test]
async fn a_monitoring_client_keeps_no_dead_waiter_alive() {
    let server = RedisServer::start();
    let mut monitor = server.connect();
    let _: redis::Value = ask(&mut monitor, &["PSUBSCRIBE", "*"]);
    let mut held = HeldResource::on(server, &[]).await;
    reunited().await;
    let dead = names(MANY);
    for process in &dead {
        held.put_places(process, 10);
    }
    let store = held.store.clone();
    let live = held.live_waiter(&store).await;
    held.unlock().await;
    let value: String = ask(&mut held.connection, &["GET", "r"]);
    assert!(!dead.iter().any(|process| value.contains(process)), "called: {value}");
    in_few_lapses(live).await.unwrap().unwrap();
}

/// leasehold may not have noticed it yet, but the first lapse shows it.
/// Trap: redis 10
#[tokio::test]
async fn a_monitoring_client_that_came_late_costs_one_lapse() {
    let mut held = HeldResource::with_an_old_session().await;
    let mut monitor = held.server.connect();
    let _: redis::Value = ask(&mut monitor, &["PSUBSCRIBE", "*"]);
    for process in names(MANY) {
        held.put_places(&process, 10);
    }
    held.serves_a_live_waiter_after_one_lapse().await;
}

/// An earlier look than the one that was planned at the hand-over, as after the
/// hand-over before, found it still unconfirmed, and was the last.
/// Trap: redis 41
#[tokio::test]
async fn a_releaser_looks_until_the_hand_over_is_over() {
    let mut held = HeldResource::new().await;
    let _frozen = freeze(&held.server);
    held.put_places(FROZEN, 1);
    held.put_places(&"d".repeat(32), 1);
    held.unlock().await;
    let called: String = ask(&mut held.connection, &["GET", "r"]);
    let () = ask(&mut held.connection, &["SET", "r", &called, "EX", "60"]);
    let () = ask(&mut held.connection, &["CONFIG", "RESETSTAT"]);
    until("two looks", || calls_made(&mut held.connection) >= 2).await;
    let () = ask(&mut held.connection, &["SET", "r", &called, "PX", "1900"]);
    until("passed over", || held.waiting() == 0).await;
}

/// Trap: redis 41
#[tokio::test]
async fn a_releaser_looks_again_after_an_outage() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let store = try_open(proxy.address(), &[("operationTimeout", "200ms")]).await.unwrap();
    let mut connection = server.connect();
    let held = take(&store, "r", MINUTE).await;
    let _frozen = freeze(&server);
    put_places(&mut connection, "r", FROZEN, 1);
    put_places(&mut connection, "r", &"d".repeat(32), 1);
    store.unlock(unlock(&held, "r")).await.unwrap();
    proxy.refuse(true);
    proxy.cut();
    // Past the look that was planned, which fails.
    tokio::time::sleep(SECOND * 3).await;
    proxy.refuse(false);
    until("passed over", || waiting(&mut connection, "r") == 0).await;
}
