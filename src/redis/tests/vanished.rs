//! Waiters whose host has vanished: their connection still counts as subscribed.

use leasehold_testkit::proxy::Conduct;

use super::{dead::freeze_as, *};

/// The names of this many processes.
pub(super) fn names(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("{n:032x}")).collect()
}

/// Gives each of these processes a connection that subscribes and is silent, and a place.
fn vanished(server: &RedisServer, processes: &[String]) -> Vec<redis::Connection> {
    let mut connection = server.connect();
    let mut silent = Vec::new();
    for process in processes {
        silent.push(freeze_as(server, process));
        put_places(&mut connection, "r", process, 1);
    }
    silent
}

/// Waits again whenever the queue is full.
async fn wait_stubbornly(store: &Store) -> Granted {
    loop {
        match store.lock(request("r", MINUTE)).await {
            Err(LockError::TooManyWaiters(_)) => tokio::time::sleep(SECOND / 20).await,
            other => return other.unwrap(),
        }
    }
}

/// They filled the queue for as long as the resource was held.
/// Trap: redis 43
#[tokio::test]
async fn waiters_of_a_host_that_vanished_do_not_fill_a_queue() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let properties = [("maxWaiters", "5"), ("operationTimeout", "60s")];
    let there = try_open(proxy.address(), &properties).await.unwrap();
    let store = open_with(&server, &properties).await;
    take(&store, "r", MINUTE).await;
    let gone: Vec<_> = (0..5).map(|_| wait(&there, "r", MINUTE)).collect();
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 5).await;
    proxy.set(Conduct::partition());
    let live = tokio::spawn(async move { wait_stubbornly(&store).await });
    let others = async {
        while waiting(&mut connection, "r") != 1 {
            tokio::time::sleep(SECOND / 20).await;
        }
    };
    in_few_lapses(others).await;
    live.abort();
    gone.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Each cost a lapse of 2 s.
/// Trap: redis 43
#[tokio::test]
async fn sixty_hosts_that_vanished_cost_two_lapses() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let held = take(&store, "r", MINUTE).await;
    let _silent = vanished(&server, &names(60));
    let mut connection = server.connect();
    let live = wait(&store, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 61).await;
    store.unlock(unlock(&held, "r")).await.unwrap();
    in_few_lapses(live).await.unwrap().unwrap();
}

/// Each of them kept readers out until a look had asked it alone.
/// Trap: redis 43
#[tokio::test]
async fn sixty_writers_that_vanished_keep_readers_out_no_longer_than_one() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let shared =
        || AcquireRequest { mode: leasehold_lock::Mode::Shared, ..request("r", MINUTE) };
    store.try_lock(shared()).await.unwrap().receipt.accept();
    let _silent = vanished(&server, &names(60));
    in_few_lapses(store.lock(shared())).await.unwrap().receipt.accept();
}

/// Nobody who waited long enough to see a lapse ever came.
/// Trap: redis 43
#[tokio::test]
async fn a_short_try_finds_what_an_earlier_one_has_asked() {
    let server = RedisServer::start();
    let processes = names(4);
    let _silent = vanished(&server, &processes);
    let short_try = async || {
        let store = open(&server).await;
        let tried = store.try_lock(request("r", MINUTE)).await;
        store.retire().await;
        tried
    };
    assert!(matches!(short_try().await, Err(LockError::Locked { .. })));
    let mut connection = server.connect();
    until("the hand-over has ended", || ask::<i64>(&mut connection, &["EXISTS", "r"]) == 0)
        .await;
    assert_eq!(waiting(&mut connection, "r"), 3, "nobody else looked");
    short_try().await.unwrap().receipt.accept();
    assert_eq!(waiting(&mut connection, "r"), 0);
}

/// A question of another process had named it.
/// Trap: redis 42
#[tokio::test]
async fn a_release_drops_no_places_of_its_own_process() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let mut connection = server.connect();
    let process = processes(&mut connection).remove(0);
    let held = take(&store, "r", MINUTE).await;
    // Nobody listens for it, which gives the release a doubt.
    put_places(&mut connection, "r", &names(1)[0], 1);
    let own = [wait(&store, "r", MINUTE), wait(&store, "r", MINUTE)];
    until("queued", || waiting(&mut connection, "r") == 3).await;
    let question = key('a', "r");
    let _: i64 = ask(&mut connection, &["SADD", &question, "", &process]);
    let asked_3_s_ago = (3_600_000 - 3_000).to_string();
    let _: i64 = ask(&mut connection, &["PEXPIRE", &question, &asked_3_s_ago]);
    store.unlock(unlock(&held, "r")).await.unwrap();
    assert_eq!(waiting(&mut connection, "r"), 2);
    own.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Trap: redis 42
#[tokio::test]
async fn a_live_waiter_that_did_not_answer_enters_again() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let slow = try_open(proxy.address(), &[]).await.unwrap();
    let mut connection = server.connect();
    let process = processes(&mut connection).remove(0);
    let store = open_with(&server, &[("maxWaiters", "1")]).await;
    take(&store, "r", MINUTE).await;
    let waiter = wait(&slow, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    proxy.set(Conduct::stalled());
    let other = tokio::spawn(async move { wait_stubbornly(&store).await });
    until("replaced", || {
        let places = places(&mut connection, "r");
        !places.is_empty() && !places[0].starts_with(&process)
    })
    .await;
    proxy.heal();
    until("behind the other", || {
        let places = places(&mut connection, "r");
        places.len() == 2 && places[1].starts_with(&process)
    })
    .await;
    drop((waiter, other));
}

/// The first release after the cut dropped the places of all whose connections were not back yet.
/// Trap: redis 42
#[tokio::test]
async fn the_first_process_back_after_a_cut_drops_nobody() {
    let server = RedisServer::start();
    let (here, there) =
        (Proxy::start(server.address()).await, Proxy::start(server.address()).await);
    let first = try_open(here.address(), &[]).await.unwrap();
    let later = try_open(there.address(), &[]).await.unwrap();
    let held = take(&first, "r", MINUTE).await;
    let mut connection = server.connect();
    let one = wait(&later, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 1).await;
    let two = wait(&later, "r", MINUTE);
    until("queued", || waiting(&mut connection, "r") == 2).await;
    reunited().await;
    let before = places(&mut connection, "r");
    there.refuse(true);
    here.cut();
    there.cut();
    until("gone", || processes(&mut connection).len() < 2).await;
    first.unlock(unlock(&held, "r")).await.unwrap();
    assert_eq!(places(&mut connection, "r"), before[1..], "the second keeps its place");
    // On a busy machine the later one may need longer than it has to confirm, and to answer.
    let _: i64 = ask(&mut connection, &["PEXPIRE", "r", "30000"]);
    let _: i64 = ask(&mut connection, &["DEL", &key('a', "r")]);
    there.refuse(false);
    let granted = soon(one).await.unwrap().unwrap();
    assert_eq!(places(&mut connection, "r"), before[1..]);
    later.unlock(unlock(&granted, "r")).await.unwrap();
    soon(two).await.unwrap().unwrap();
}
