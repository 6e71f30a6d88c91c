//! Waiters whose process has died, or stands still.

use super::*;

/// Subscribes as a process would that then stands still.
fn listen<'a>(frozen: &'a mut redis::Connection, process: &str) -> redis::PubSub<'a> {
    let mut listening = frozen.as_pubsub();
    listening.subscribe(format!("\x01n{process}")).unwrap();
    listening
}

#[tokio::test]
async fn a_dead_waiter_is_passed_over() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let held = take(&store, "r", MINUTE).await;
    for process in ["a", "b", "c", "d"] {
        put_places(&mut connection, "r", &process.repeat(32), 10);
    }
    let live = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 41).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    in_four_seconds(live).await.unwrap().unwrap();
}

#[tokio::test]
async fn ten_thousand_dead_waiters_are_passed_over_in_time() {
    let server = RedisServer::start();
    let store = open_with(&server, &[("maxWaiters", "20000")]).await;
    let mut connection = server.connect();
    let held = take(&store, "r", MINUTE).await;
    put_places(&mut connection, "r", &"d".repeat(32), 10_000);
    let live = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 10_001).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    in_four_seconds(live).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_waiter_that_hears_but_never_confirms_is_passed_over() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let mut frozen = server.connect();
    let process = "f".repeat(32);
    let _listening = listen(&mut frozen, &process);
    let held = take(&store, "r", MINUTE).await;
    put_places(&mut connection, "r", &process, 3);
    let live = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 4).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    in_four_seconds(live).await.unwrap().unwrap();
}

#[tokio::test]
async fn all_places_of_a_silent_process_cost_one_lapse() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let mut frozen = server.connect();
    let process = "f".repeat(32);
    let _listening = listen(&mut frozen, &process);
    let held = take(&store, "r", MINUTE).await;
    let mut live = Vec::new();
    for n in 1..=3 {
        put_places(&mut connection, "r", &process, 1);
        live.push(wait(&store, "r", MINUTE));
        until("queued", || waiting(&mut connection, "r") == 2 * n).await;
    }
    store.unlock(unlock(&held, "r")).await.unwrap();
    in_four_seconds(async {
        for waiter in live {
            let granted = waiter.await.unwrap().unwrap();
            store.unlock(unlock(&granted, "r")).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_silent_waiter_is_passed_over_also_when_the_releaser_has_gone() {
    let server = RedisServer::start();
    let (store, releaser) = (open(&server).await, open(&server).await);
    let mut connection = server.connect();
    let mut frozen = server.connect();
    let process = "f".repeat(32);
    let _listening = listen(&mut frozen, &process);
    let held = take(&releaser, "r", MINUTE).await;
    put_places(&mut connection, "r", &process, 1);
    let live = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 2).await;
    let () = ask(&mut connection, &["CONFIG", "RESETSTAT"]);
    // From then on it expects nothing before the grant's end.
    until("the waiter's first look", || {
        let stats: String = ask(&mut connection, &["INFO", "commandstats"]);
        stats.contains("cmdstat_pttl")
    })
    .await;
    releaser.unlock(unlock(&held, "r")).await.unwrap();
    releaser.retire().await;
    in_four_seconds(live).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_call_for_an_unknown_attempt_is_passed_on_at_once() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let own = processes(&mut connection);
    // Three that wait for something else and have forgotten a place here each.
    let forgetful = [open(&server).await, open(&server).await, open(&server).await];
    take(&store, "other", MINUTE).await;
    let elsewhere = forgetful.each_ref().map(|there| wait(there, "other", MINUTE));
    until("queued", || waiting(&mut connection, "other") == 3).await;
    let held = take(&store, "r", MINUTE).await;
    for process in processes(&mut connection).iter().filter(|name| !own.contains(name)) {
        put_places(&mut connection, "r", process, 1);
    }
    let live = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 4).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    // Each would cost a lapse of 2 s otherwise.
    in_four_seconds(live).await.unwrap().unwrap();
    drop(elsewhere);
}

#[tokio::test]
async fn a_queue_of_the_dead_does_not_block_tries() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    put_places(&mut connection, "r", &"d".repeat(32), 20);
    let tried = in_four_seconds(async {
        loop {
            if let Ok(granted) = store.try_lock(request("r", MINUTE)).await {
                return granted;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    tried.receipt.accept();
}

#[tokio::test]
async fn dead_places_do_not_fill_a_queue() {
    let server = RedisServer::start();
    let store = open_with(&server, &[("maxWaiters", "2")]).await;
    let mut connection = server.connect();
    take(&store, "r", MINUTE).await;
    put_places(&mut connection, "r", &"d".repeat(32), 2);
    let live = wait(&store, "r", MINUTE);
    until("queued, and the dead dropped", || waiting(&mut connection, "r") == 1).await;
    live.abort();
}
