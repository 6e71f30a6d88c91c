//! Slots that move from node to node.

use super::*;

#[tokio::test]
async fn locks_are_kept_on_all_nodes() {
    let cluster = RedisCluster::start(3, 0);
    let (here, there) = (open_cluster(&cluster).await, open_cluster(&cluster).await);
    for master in 0..3 {
        let name = name_at(&cluster, master);
        let held = take(&here, &name, MINUTE).await;
        assert!(there.try_lock(request(&name, MINUTE)).await.is_err());
        here.renew(renewal(&held, &name, MINUTE)).await.unwrap();
        let waits = wait(&there, &name, MINUTE);
        until("queued", || waiting_at(&cluster, master, &name) == 1).await;
        here.unlock(unlock(&held, &name)).await.unwrap();
        let next = soon(waits).await.unwrap().unwrap();
        assert!(next.token > held.token);
        there.unlock(force(&name)).await.unwrap();
    }
}

#[tokio::test]
async fn every_pattern_of_braces_is_one_lock_in_one_slot() {
    let cluster = RedisCluster::start(3, 0);
    let store = open_cluster(&cluster).await;
    for name in
        ["a}b", "{a}b", "{}a", "a{b", "a{}{b}", "{{a}}", "}{a", "a{b}c{d}", "{", "}", "{}"]
    {
        let held = take(&store, name, MINUTE).await;
        let waits = wait(&store, name, MINUTE);
        let owner = cluster.first_owner(slot_of_key(&cluster, name));
        let mut connection = cluster.nodes[owner].connect();
        let queue = || format!("\x01q*{name}");
        until("queued", || {
            !ask::<Vec<String>>(&mut connection, &["KEYS", &queue()]).is_empty()
        })
        .await;
        store.unlock(unlock(&held, name)).await.unwrap();
        soon(waits).await.unwrap().unwrap();
        store.unlock(force(name)).await.unwrap();
        assert_eq!(ask::<i64>(&mut connection, &["EXISTS", name]), 0, "{name}");
    }
}

#[tokio::test]
async fn a_slot_moves_with_its_lock_and_its_waiters() {
    let cluster = RedisCluster::start(3, 0);
    let (here, there) = (open_cluster(&cluster).await, open_cluster(&cluster).await);
    let name = name_at(&cluster, 0);
    let held = take(&here, &name, MINUTE).await;
    let waits = [(); 3].map(|()| wait(&there, &name, MINUTE));
    until("queued", || waiting_at(&cluster, 0, &name) == 3).await;
    cluster.move_slot(slot(&name), 0, 1);
    here.renew(renewal(&held, &name, MINUTE)).await.unwrap();
    here.unlock(unlock(&held, &name)).await.unwrap();
    let mut last = held.token;
    for _ in &waits {
        until("the next holds", || {
            let value: Option<String> = ask(&mut cluster.nodes[1].connect(), &["GET", &name]);
            value.is_some_and(|value| !value.starts_with('\x01'))
        })
        .await;
        there.unlock(force(&name)).await.unwrap();
    }
    for waits in waits {
        let granted = soon(waits).await.unwrap().unwrap();
        assert!(granted.token > held.token);
        last = last.max(granted.token);
    }
    cluster.move_slot(slot(&name), 1, 0);
    assert!(take(&here, &name, MINUTE).await.token > last);
}

/// Caller-chosen lock IDs are believed only if both keys end together.
#[tokio::test]
async fn a_record_belongs_to_its_key_after_a_move() {
    let cluster = RedisCluster::start(2, 0);
    let store = open_cluster(&cluster).await;
    let name = name_at(&cluster, 0);
    let asked = AcquireRequest {
        lock_id: Some(LockId::new("me").unwrap()),
        request_id: RequestId::new("once").unwrap(),
        ..request(&name, MINUTE)
    };
    let held = store.try_lock(asked.clone()).await.unwrap();
    held.receipt.accept();
    let slot = slot(&name);
    cluster.open_slot(slot, 0, 1);
    // Each key restores its own remaining time.
    cluster.move_these_keys(&[&name], 0, 1);
    tokio::time::sleep(SECOND / 5).await;
    cluster.move_keys(slot, 0, 1);
    cluster.close_slot(slot, 1);
    let again = store.try_lock(asked).await.unwrap();
    assert_eq!(again.token, held.token);
    store.unlock(unlock(&held, &name)).await.unwrap();
    assert_eq!(ask::<i64>(&mut cluster.nodes[1].connect(), &["EXISTS", &name]), 0);
}

#[tokio::test]
async fn a_lock_is_renewed_while_its_slot_is_open_on_either_node() {
    let cluster = RedisCluster::start(2, 0);
    let store = open_cluster(&cluster).await;
    let name = name_at(&cluster, 0);
    let held = take(&store, &name, MINUTE).await;
    let slot = slot(&name);
    cluster.open_slot(slot, 0, 1);
    store.renew(renewal(&held, &name, MINUTE * 2)).await.unwrap();
    cluster.move_these_keys(&[&name, &key('h', &name)], 0, 1);
    store.renew(renewal(&held, &name, MINUTE * 3)).await.unwrap();
    let left: i64 = {
        let mut connection = cluster.nodes[1].connect();
        let () = ask(&mut connection, &["ASKING"]);
        ask(&mut connection, &["PTTL", &name])
    };
    assert!(left > 125_000, "{left}");
    cluster.move_keys(slot, 0, 1);
    cluster.close_slot(slot, 1);
    store.unlock(unlock(&held, &name)).await.unwrap();
}

/// After a force, the process declared the keys of readers, which are on neither node.
#[tokio::test]
async fn a_lock_is_renewed_while_its_slot_is_open_after_another_was_forced() {
    let cluster = RedisCluster::start(2, 0);
    let store = open_cluster(&cluster).await;
    let name = name_at(&cluster, 0);
    take(&store, &name, MINUTE).await;
    store.unlock(force(&name)).await.unwrap();
    let held = take(&store, &name, MINUTE).await;
    let slot = slot(&name);
    cluster.open_slot(slot, 0, 1);
    cluster.move_these_keys(&[&name, &key('h', &name)], 0, 1);
    store.renew(renewal(&held, &name, MINUTE * 2)).await.unwrap();
}

#[tokio::test]
async fn a_slot_that_is_left_open_is_unavailable_and_named() {
    let cluster = RedisCluster::start(2, 0);
    let store = clustered(&cluster.list(), &[("operationTimeout", "300ms")]).await.unwrap();
    let name = name_at(&cluster, 0);
    let held = take(&store, &name, MINUTE).await;
    cluster.open_slot(slot(&name), 0, 1);
    // On a slow machine the last sending may get no answer in time.
    let why = soon(async {
        loop {
            let refused = store.unlock(unlock(&held, &name)).await.unwrap_err();
            if let LockError::StoreUnavailable(why) = refused {
                return why;
            }
        }
    })
    .await;
    assert!(why.contains(&format!("slot {}", slot(&name))), "{why}");
    cluster.move_keys(slot(&name), 0, 1);
    cluster.close_slot(slot(&name), 1);
    store.unlock(unlock(&held, &name)).await.unwrap();
}

/// A queue is deleted with its last place, and a key that is missing counts as moved.
#[tokio::test]
async fn a_release_on_an_open_slot_touches_no_key_that_it_deleted() {
    let cluster = RedisCluster::start(2, 0);
    let store = open_cluster(&cluster).await;
    let name = name_at(&cluster, 0);
    let held = take(&store, &name, MINUTE).await;
    let mut connection = cluster.nodes[0].connect();
    // Every key of the resource is there, so calls are carried out.
    put_places(&mut connection, &name, &"de".repeat(16), 1);
    let _: i64 = ask(&mut connection, &["SADD", &key('a', &name), ""]);
    cluster.open_slot(slot(&name), 0, 1);
    store.unlock(unlock(&held, &name)).await.unwrap();
    let value: String = ask(&mut connection, &["GET", &name]);
    assert!(value.starts_with('\x01'), "handed over: {value}");
}
