//! Failovers of all kinds.

use leasehold_testkit::proxy::Conduct;

use super::{super::scene::Scene, *};

async fn begin(deployment: &Deployment) -> Scene {
    let stores = [deployment.open().await, deployment.open().await];
    Scene::begin(stores, "r", &deployment.servers[0], 2).await
}

/// Checks the scene at the new master, once the stores have followed.
async fn end(scene: Scene, new: &RedisServer) {
    followed(new, 2).await;
    scene.end(new).await;
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn a_failover_by_command_keeps_the_lock_and_serves_its_waiters() {
    let deployment = Deployment::start();
    let scene = begin(&deployment).await;
    let new = deployment.at(deployment.sentinels.fail_over());
    end(scene, new).await;
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn a_failover_after_the_masters_death_keeps_the_lock_and_serves_its_waiters() {
    let mut deployment = Deployment::start();
    let scene = begin(&deployment).await;
    deployment.first().kill();
    end(scene, deployment.failed_over().await).await;
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn a_failover_from_a_suspended_master_keeps_the_lock_and_serves_its_waiters() {
    let mut deployment = Deployment::start();
    let scene = begin(&deployment).await;
    deployment.first().process.suspend().unwrap();
    let new = deployment.failed_over().await;
    followed(new, 2).await;
    // What is in its buffers it carries out as a master.
    deployment.servers[0].process.resume().unwrap();
    end(scene, new).await;
}

/// A deployment that reaches its master over a proxy, as stores do then.
async fn behind_a_proxy(arguments: &[&str]) -> (Deployment, Proxy) {
    let master = master(arguments);
    let proxy = Proxy::start(master.address()).await;
    let address = proxy.address().to_owned();
    let arguments: Vec<String> = arguments.iter().map(|&it| it.to_owned()).collect();
    let deployment = tokio::task::spawn_blocking(move || {
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        Deployment::around(master, &address, &arguments)
    });
    (deployment.await.unwrap(), proxy)
}

/// Returns the new master after that behind the proxy.
async fn failed_over_from(deployment: &Deployment, proxy: &Proxy) -> u16 {
    let (_, port) = proxy.address().rsplit_once(':').unwrap();
    let before: u16 = port.parse().unwrap();
    let mut port = before;
    until("a failover", || {
        port = deployment.sentinels.master_port();
        port != before
    })
    .await;
    port
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn a_failover_from_a_master_that_is_cut_off_keeps_the_lock_and_serves_its_waiters() {
    for arguments in [&[][..], &["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"]]
    {
        let (deployment, proxy) = behind_a_proxy(arguments).await;
        let scene = begin(&deployment).await;
        proxy.set(Conduct::partition());
        let new = deployment.at(failed_over_from(&deployment, &proxy).await);
        followed(new, 2).await;
        proxy.heal();
        end(scene, new).await;
    }
}

/// Calls in flight at a former master are made at the new one. What the former one carries out
/// once it resumes is known to nobody.
#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn calls_in_flight_at_a_suspended_master_are_answered_by_the_next() {
    let mut deployment = Deployment::start();
    let store = deployment.open_with(&[("operationTimeout", "20s")]).await;
    let held = take(&store, "held", MINUTE).await;
    let ended = take(&store, "ended", MINUTE).await;
    deployment.catch_up();
    deployment.first().process.suspend().unwrap();
    let (trying, renewing, unlocking) = tokio::join!(
        store.try_lock(request("r", MINUTE)),
        store.renew(renewal(&held, "held", MINUTE)),
        store.unlock(unlock(&ended, "ended")),
    );
    let granted = trying.unwrap();
    granted.receipt.accept();
    renewing.unwrap();
    unlocking.unwrap();
    let new = deployment.failed_over().await;
    deployment.servers[0].process.resume().unwrap();
    let mut connection = new.connect();
    assert_eq!(ask::<String>(&mut connection, &["GET", "r"]), granted.lock_id.as_str());
    assert_eq!(ask::<i64>(&mut connection, &["EXISTS", "held", "ended"]), 1);
    store.unlock(unlock(&granted, "r")).await.unwrap();
}

/// Measured from the moment when a replica says that it is the master.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn calls_recover_soon_after_the_promotion() {
    let mut deployment = Deployment::start();
    let store = deployment.open_with(&[("operationTimeout", "200ms")]).await;
    take(&store, "r", MINUTE).await;
    let addresses: Vec<_> = deployment.servers[1..].iter().map(RedisServer::url).collect();
    deployment.first().kill();
    let promoted = tokio::task::spawn_blocking(move || {
        // The promotion ends connections.
        let is_master = |url: &String| {
            let mut connection = redis::Client::open(url.as_str())?.get_connection()?;
            let role: Vec<redis::Value> = redis::cmd("ROLE").query(&mut connection)?;
            Ok::<_, redis::RedisError>(
                redis::from_redis_value::<String>(role[0].clone())? == "master",
            )
        };
        while !addresses.iter().any(|url| is_master(url).unwrap_or(false)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Instant::now()
    });
    let recovered = soon(async {
        let mut n = 0;
        while store.try_lock(request(&format!("r{n}"), MINUTE)).await.is_err() {
            n += 1;
        }
        Instant::now()
    })
    .await;
    let took = recovered.saturating_duration_since(soon(promoted).await.unwrap());
    eprintln!("recovered {took:?} after the promotion");
    // Sooner than a lost connection is noticed without the announcement, in 5 s.
    assert!(took < SECOND * 4, "{took:?}");
}

/// A release that was sent to the former master names its grant.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn a_release_across_a_failover_ends_no_later_grant_of_the_same_owner() {
    let mut deployment = Deployment::start();
    let mut proxies = Vec::new();
    for sentinel in &deployment.sentinels.all {
        proxies.push(Proxy::start(sentinel.address()).await);
    }
    let list: Vec<_> = proxies.iter().map(Proxy::address).collect();
    let late = watched(&list.join(","), &[("operationTimeout", "20s")]).await.unwrap();
    let own =
        || AcquireRequest { lock_id: Some(LockId::new("me").unwrap()), ..request("r", MINUTE) };
    late.try_lock(own()).await.unwrap().receipt.accept();
    deployment.catch_up();
    proxies.iter().for_each(|proxy| proxy.set(Conduct::partition()));
    deployment.first().process.suspend().unwrap();
    let release = UnlockRequest::owner("r".parse().unwrap(), LockId::new("me").unwrap());
    let releasing = tokio::spawn({
        let late = late.clone();
        async move { late.unlock(release).await }
    });
    let new = deployment.failed_over().await;
    let store = deployment.open().await;
    store.unlock(force("r")).await.unwrap();
    let next = store.try_lock(own()).await.unwrap();
    next.receipt.accept();
    proxies.iter().for_each(Proxy::heal);
    let released = soon(releasing).await.unwrap();
    assert!(released.is_err(), "the grant was ended by somebody else");
    assert_eq!(ask::<String>(&mut new.connect(), &["GET", "r"]), "me");
    store.renew(renewal(&next, "r", MINUTE)).await.unwrap();
}

#[tokio::test]
#[ignore = "starts Sentinels and waits for them; make test-all runs it"]
async fn locks_go_on_while_no_sentinel_answers() {
    let mut deployment = Deployment::start();
    let store = deployment.open().await;
    for sentinel in &mut deployment.sentinels.all {
        sentinel.process.kill();
    }
    let held = take(&store, "r", MINUTE).await;
    // Longer than a heartbeat.
    tokio::time::sleep(SECOND * 6).await;
    store.renew(renewal(&held, "r", MINUTE)).await.unwrap();
    // Nobody says that the server is the master still, so it is not connected to again.
    let _: i64 =
        ask(&mut deployment.servers[0].connect(), &["CLIENT", "KILL", "TYPE", "pubsub"]);
    let is_named = |pinged: Result<(), LockError>| match pinged {
        Err(LockError::StoreUnavailable(why)) => why.contains("no Sentinel names the master"),
        _ => false,
    };
    soon(async { while !is_named(store.ping().await) {} }).await;
    for sentinel in &mut deployment.sentinels.all {
        sentinel.process.start().unwrap();
    }
    soon(async { while store.renew(renewal(&held, "r", MINUTE)).await.is_err() {} }).await;
}
