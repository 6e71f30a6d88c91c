//! A master that is demoted, behind an address that stays; servers that are
//! no masters; servers that are busy.

use super::*;

/// A master and its replica, which has caught up.
async fn pair() -> (RedisServer, RedisServer) {
    // A master waits for further replicas before it sends its data, 5 s by default.
    let at_once = ["--repl-diskless-sync-delay", "0"];
    let (master, replica) =
        (RedisServer::start_with(&at_once), RedisServer::start_with(&at_once));
    let () =
        ask(&mut replica.connect(), &["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let mut connection = replica.connect();
    until("the replica is in sync", || {
        let info: String = ask(&mut connection, &["INFO", "replication"]);
        info.contains("master_link_status:up")
    })
    .await;
    (master, replica)
}

/// The replica becomes the master. The former master is made to follow a
/// missing server, so that it keeps its data.
async fn fail_over(master: &RedisServer, replica: &RedisServer) {
    scene::catch_up(master, "r", 1);
    let () = ask(&mut replica.connect(), &["REPLICAOF", "NO", "ONE"]);
    let () = ask(&mut master.connect(), &["REPLICAOF", "127.0.0.1", "1"]);
}

/// Trap: redis 46
#[tokio::test]
async fn calls_go_on_at_the_new_master_while_the_demoted_one_stays_connected() {
    let (old, new) = pair().await;
    let fixed = Proxy::start(old.address()).await;
    let store = try_open(fixed.address(), &[]).await.unwrap();
    let held = take(&store, "held", MINUTE).await;
    fail_over(&old, &new).await;
    fixed.lead_to(new.address());
    take(&store, "r", MINUTE).await;
    store.renew(renewal(&held, "held", MINUTE)).await.unwrap();
    store.unlock(unlock(&held, "held")).await.unwrap();
    assert_eq!(ask::<i64>(&mut new.connect(), &["EXISTS", "r", "held"]), 1);
}

/// Trap: redis 46
#[tokio::test]
async fn calls_go_on_at_the_new_master_when_the_old_one_was_killed() {
    let (mut old, new) = pair().await;
    let fixed = Proxy::start(old.address()).await;
    let store = try_open(fixed.address(), &[]).await.unwrap();
    let held = take(&store, "held", MINUTE).await;
    scene::catch_up(&old, "r", 1);
    old.kill();
    // For a while the address leads to a server that is a replica still.
    fixed.lead_to(new.address());
    let trying = tokio::spawn({
        let store = store.clone();
        async move { store.try_lock(request("r", MINUTE)).await.map(|got| got.receipt.accept()) }
    });
    tokio::time::sleep(SECOND / 2).await;
    let () = ask(&mut new.connect(), &["REPLICAOF", "NO", "ONE"]);
    soon(trying).await.unwrap().unwrap();
    store.unlock(unlock(&held, "held")).await.unwrap();
}

/// Trap: redis 46
#[tokio::test]
async fn a_demoted_master_refuses_no_try_from_its_old_data() {
    let (old, new) = pair().await;
    let fixed = Proxy::start(old.address()).await;
    let store = try_open(fixed.address(), &[]).await.unwrap();
    let held = take(&store, "r", MINUTE).await;
    fail_over(&old, &new).await;
    fixed.lead_to(new.address());
    let there = open(&new).await;
    there.unlock(unlock(&held, "r")).await.unwrap();
    take(&store, "r", MINUTE).await;
}

/// Trap: redis 46
#[tokio::test]
async fn a_demoted_master_does_not_report_a_lock_as_lost() {
    let (old, new) = pair().await;
    let fixed = Proxy::start(old.address()).await;
    let stores = [
        try_open(fixed.address(), &[]).await.unwrap(),
        try_open(fixed.address(), &[]).await.unwrap(),
        try_open(fixed.address(), &[]).await.unwrap(),
    ];
    fail_over(&old, &new).await;
    fixed.lead_to(new.address());
    let held = take(&open(&new).await, "r", MINUTE).await;
    stores[0].renew(renewal(&held, "r", MINUTE)).await.unwrap();
    stores[1].unlock(unlock(&held, "r")).await.unwrap();
    take(&open(&new).await, "r", MINUTE).await;
    stores[2].unlock(force("r")).await.unwrap();
}

/// Trap: redis 46
#[tokio::test]
async fn a_waiter_at_a_demoted_master_goes_on_waiting_at_the_new_one() {
    let (old, new) = pair().await;
    let fixed = Proxy::start(old.address()).await;
    let store = try_open(fixed.address(), &[]).await.unwrap();
    let held = take(&store, "r", MINUTE).await;
    let waiter = wait(&store, "r", MINUTE);
    let mut connection = old.connect();
    until("queued", || ask::<i64>(&mut connection, &["EXISTS", "\x01q{2Rk}r"]) == 1).await;
    fail_over(&old, &new).await;
    fixed.lead_to(new.address());
    open(&new).await.unlock(unlock(&held, "r")).await.unwrap();
    // There are no calls: the heartbeat detects it.
    tokio::time::timeout(SECOND * 20, waiter).await.expect("in time").unwrap().unwrap();
}

/// Trap: redis 46
#[tokio::test]
async fn without_a_new_master_a_demoted_one_is_unavailable() {
    let (old, new) = pair().await;
    let store = open_with(&old, &[("operationTimeout", "500ms")]).await;
    fail_over(&old, &new).await;
    for _ in 0..2 {
        let why = unavailable(&store).await;
        assert!(why.contains("replica"), "{why}");
    }
    // It is a master again, and nothing was changed.
    let () = ask(&mut old.connect(), &["REPLICAOF", "NO", "ONE"]);
    soon(async { while store.ping().await.is_err() {} }).await;
    take(&store, "r", MINUTE).await;
}

async fn refused_host(server: &RedisServer) -> String {
    match try_open(&server.address(), &[]).await.err() {
        Some(LockError::InvalidMetadata(violations)) => {
            assert_eq!(violations[0].field, "redisHost");
            violations[0].problem.clone()
        }
        other => panic!("{other:?}"),
    }
}

/// Trap: redis 46
#[tokio::test]
async fn init_refuses_a_replica() {
    let (_master, replica) = pair().await;
    let problem = refused_host(&replica).await;
    assert!(problem.contains("replica") && problem.contains("master"), "{problem}");
}

/// Runs a script of somebody else for as long as `during` takes.
async fn while_busy<T>(server: &RedisServer, during: impl Future<Output = T>) -> T {
    let mut connection = server.connect();
    let running = std::thread::spawn(move || {
        let _: redis::RedisResult<redis::Value> =
            redis::cmd("EVAL").arg("while true do end").arg(0).query(&mut connection);
    });
    let mut connection = server.connect();
    until("busy", || {
        let answer: redis::RedisResult<String> =
            redis::cmd("GET").arg("r").query(&mut connection);
        answer.is_err_and(|error| error.code() == Some("BUSY"))
    })
    .await;
    let result = during.await;
    let () = ask(&mut connection, &["SCRIPT", "KILL"]);
    running.join().unwrap();
    result
}

fn connections_received(connection: &mut redis::Connection) -> String {
    let info: String = ask(connection, &["INFO", "stats"]);
    info.lines().find(|line| line.starts_with("total_connections_received")).unwrap().to_owned()
}

#[tokio::test]
async fn a_busy_server_does_not_end_the_connection() {
    let server = RedisServer::start_with(&["--lua-time-limit", "100"]);
    let store = open(&server).await;
    let held = take(&store, "r", MINUTE).await;
    let mut before = String::new();
    while_busy(&server, async {
        // Until the heartbeat has met it.
        tokio::time::sleep(SECOND * 6).await;
        before = store.ping().await.unwrap_err().to_string();
    })
    .await;
    assert!(before.contains("BUSY"), "{before}");
    store.renew(renewal(&held, "r", MINUTE)).await.unwrap();
    // The store's, the one that ran the script, and two that looked.
    let mut connection = server.connect();
    let received = connections_received(&mut connection);
    let (_, number) = received.split_once(':').unwrap();
    assert!(number.trim().parse::<u32>().unwrap() <= 5, "{received}");
}

#[tokio::test]
async fn a_call_outlasts_a_busy_server() {
    let server = RedisServer::start_with(&["--lua-time-limit", "100"]);
    let store = open(&server).await;
    let calling = tokio::sync::OnceCell::new();
    while_busy(&server, async {
        let store = store.clone();
        let call = tokio::spawn(async move { take(&store, "r", MINUTE).await });
        calling.set(call).unwrap();
        tokio::time::sleep(SECOND / 2).await;
    })
    .await;
    soon(calling.into_inner().unwrap()).await.unwrap();
}
