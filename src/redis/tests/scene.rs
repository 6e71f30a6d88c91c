//! What every failover must leave as it was.

use super::*;

/// A held lock, and those who wait for it.
pub(super) struct Scene {
    pub(super) stores: [Store; 2],
    pub(super) name: String,
    held: Granted,
    waiters: Vec<tokio::task::JoinHandle<Result<Granted, LockError>>>,
}

impl Scene {
    /// Makes one on this master, and returns when its replicas have all of it.
    pub(super) async fn begin(
        stores: [Store; 2],
        name: &str,
        master: &RedisServer,
        replicas: i64,
    ) -> Self {
        let held = take(&stores[0], name, MINUTE).await;
        let mut waiters = Vec::new();
        let mut connection = master.connect();
        for by in [0, 1, 0] {
            waiters.push(wait(&stores[by], name, MINUTE));
            until("queued", || waiting(&mut connection, name) == waiters.len()).await;
        }
        catch_up(master, name, replicas);
        Self { stores, name: name.to_owned(), held, waiters }
    }

    /// Checks it at the new master.
    pub(super) async fn end(self, new: &RedisServer) {
        let Self { stores: [store, _], name, held, waiters } = self;
        store.renew(renewal(&held, &name, MINUTE)).await.unwrap();
        let refused = store.try_lock(request(&name, MINUTE)).await;
        assert!(matches!(refused, Err(LockError::Locked { .. })), "{refused:?}");
        let mut before = held;
        for waiter in waiters {
            assert!(!waiter.is_finished());
            store.unlock(unlock(&before, &name)).await.unwrap();
            let granted = soon(waiter).await.unwrap().unwrap();
            assert!(granted.token > before.token, "{granted:?} after {before:?}");
            before = granted;
        }
        let value: String = ask(&mut new.connect(), &["GET", &name]);
        assert_eq!(value, before.lock_id.as_str());
    }
}

/// Returns when the replicas have all that the master has written, which has this resource.
pub(super) fn catch_up(master: &RedisServer, resource: &str, replicas: i64) {
    let mut connection = master.connect();
    // It waits for this connection's own writes.
    let () = ask(&mut connection, &["SET", &key('w', resource), "1", "PX", "60000"]);
    assert_eq!(
        ask::<i64>(&mut connection, &["WAIT", &replicas.to_string(), "10000"]),
        replicas
    );
}
