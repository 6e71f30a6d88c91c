//! What Init says of Sentinels that cannot be used.

use super::*;

fn violation(opened: Result<Store, LockError>) -> (String, String) {
    match opened.err() {
        Some(LockError::InvalidMetadata(violations)) => {
            (violations[0].field.to_string(), violations[0].problem.clone())
        }
        other => panic!("{other:?}"),
    }
}

pub(super) fn unavailable(opened: Result<Store, LockError>) -> String {
    match opened.err() {
        Some(LockError::StoreUnavailable(why)) => why.to_string(),
        other => panic!("{other:?}"),
    }
}

/// A Sentinel that watches a server.
fn lone(server: &RedisServer, lines: &[&str]) -> Sentinels {
    Sentinels::watch(&server.address(), 1, 0, lines)
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn sentinels_that_disagree_are_the_fault_of_their_list() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let sentinels = [lone(&servers[0], &[]), lone(&servers[1], &[])];
    let list = format!("{},{}", sentinels[0].list(), sentinels[1].list());
    let (field, problem) = violation(watched(&list, &[]).await);
    assert_eq!(field, "redisHost");
    assert!(servers.iter().all(|server| problem.contains(&server.address())), "{problem}");
    take(&watched(&sentinels[0].list(), &[]).await.unwrap(), "r", MINUTE).await;
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn an_unknown_name_is_the_fault_of_the_name() {
    let server = RedisServer::start();
    let sentinels = lone(&server, &[]);
    let items = [("failover", "true"), ("sentinelMasterName", "other")];
    let (field, problem) = violation(try_open(&sentinels.list(), &items).await);
    assert_eq!(field, "sentinelMasterName");
    assert!(problem.contains("\"other\""), "{problem}");
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn wrong_credentials_for_sentinels_are_told_from_those_for_the_master() {
    let server = RedisServer::start_with(&["--requirepass", "one"]);
    let sentinels = {
        let lines = ["requirepass two", "sentinel auth-pass main one"];
        // Its own readiness cannot be asked without the password.
        Sentinels::start(&server.address(), 1, &lines)
    };
    let list = sentinels.list();
    for (sentinel, master, field) in [
        (None, Some("one"), "sentinelPassword"),
        (Some("wrong-secret"), Some("one"), "sentinelPassword"),
        (Some("two"), None, "redisPassword"),
        (Some("two"), Some("wrong-secret"), "redisPassword"),
    ] {
        let mut items = Vec::new();
        items.extend(sentinel.map(|password| ("sentinelPassword", password)));
        items.extend(master.map(|password| ("redisPassword", password)));
        let (named, problem) = violation(watched(&list, &items).await);
        assert_eq!(named, field, "{items:?}: {problem}");
        assert!(!problem.contains("wrong-secret"), "{problem}");
    }
    let items = [("sentinelPassword", "two"), ("redisPassword", "one")];
    take(&watched(&list, &items).await.unwrap(), "r", MINUTE).await;
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn sentinels_that_are_not_reached_are_unavailable_and_named() {
    let server = RedisServer::start();
    let mut sentinels = lone(&server, &[]);
    let address = sentinels.list();
    sentinels.all[0].process.suspend().unwrap();
    let why = unavailable(watched(&address, &[]).await);
    assert!(why.contains(&address), "{why}");
    sentinels.all[0].process.kill();
    let why = unavailable(watched(&address, &[]).await);
    assert!(why.contains(&address), "{why}");
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn one_sentinel_that_answers_is_enough() {
    let server = RedisServer::start();
    let mut sentinels = Sentinels::watch(&server.address(), 3, 0, &[]);
    sentinels.all[0].process.kill();
    sentinels.all[1].process.suspend().unwrap();
    take(&watched(&sentinels.list(), &[]).await.unwrap(), "r", MINUTE).await;
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn servers_that_are_no_sentinels_and_the_reverse_are_the_fault_of_the_list() {
    let server = RedisServer::start();
    let (field, problem) = violation(watched(&server.address(), &[]).await);
    assert_eq!(field, "redisHost");
    assert!(problem.contains("no Sentinel"), "{problem}");
    let sentinels = lone(&server, &[]);
    for more in [&[][..], &[("redisDB", "3")]] {
        let (field, problem) = violation(try_open(&sentinels.list(), more).await);
        assert_eq!(field, "redisHost");
        assert!(problem.contains("is a Sentinel") && problem.contains("failover"), "{problem}");
    }
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn a_master_that_cannot_be_reached_is_named_with_who_named_it() {
    let mut server = RedisServer::start();
    let sentinels = lone(&server, &[]);
    let address = server.address();
    server.kill();
    let why = unavailable(watched(&sentinels.list(), &[]).await);
    assert!(why.contains(&address) && why.contains("Sentinels name"), "{why}");
}

/// The log of this process.
fn log() -> &'static parking_lot::Mutex<Vec<u8>> {
    static LOG: parking_lot::Mutex<Vec<u8>> = parking_lot::Mutex::new(Vec::new());
    static ONCE: std::sync::Once = std::sync::Once::new();
    struct Writer;
    impl std::io::Write for Writer {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            LOG.lock().extend(text);
            Ok(text.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    // Global, because tracing caches which events have a subscriber: a thread-local one would
    // miss events that other tests have logged before.
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
            .with_writer(|| Writer)
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    &LOG
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn a_master_that_needs_no_replicas_is_warned_of() {
    let log = log();
    for (arguments, is_warned_of) in
        [(&[][..], true), (&["--min-replicas-to-write", "1"], false)]
    {
        let server = master(arguments);
        let _replica = replica_of(&server.address(), &[]);
        let sentinels = Sentinels::watch(&server.address(), 1, 1, &[]);
        watched(&sentinels.list(), &[]).await.unwrap();
        let log = String::from_utf8_lossy(&log.lock()).into_owned();
        let warned = log.lines().any(|line| {
            line.contains("min-replicas-to-write") && line.contains(&server.address())
        });
        assert_eq!(warned, is_warned_of, "{log}");
    }
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn the_documented_permissions_suffice_at_sentinels() {
    let documented = include_str!("../../../../docs/redis.md");
    let (_, rule) = documented.split_once("redis-cli -p 26379").unwrap();
    let (_, rule) = rule.split_once("ACL SETUSER leasehold on >password").unwrap();
    let (rule, _) = rule.split_once("\nEND").unwrap();
    assert!(!rule.contains('\n'), "redis-cli takes a line for a command");
    let deployment = Deployment::start();
    for sentinel in &deployment.sentinels.all {
        let mut setuser = redis::cmd("ACL");
        setuser.arg("SETUSER").arg("leasehold").arg("on").arg(">password");
        setuser.arg(rule.split_whitespace().collect::<Vec<_>>());
        let () = setuser.query(&mut sentinel.connect()).unwrap();
    }
    let user = [("sentinelUsername", "leasehold"), ("sentinelPassword", "password")];
    let _store = deployment.open_with(&user).await;
    let new = deployment.at(deployment.sentinels.fail_over());
    followed(new, 1).await;
    for sentinel in &deployment.sentinels.all {
        let denied: Vec<redis::Value> = ask(&mut sentinel.connect(), &["ACL", "LOG"]);
        assert!(denied.is_empty(), "{denied:?}");
    }
}
