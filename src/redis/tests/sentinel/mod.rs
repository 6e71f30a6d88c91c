//! A master that Sentinels name.
//!
//! `make test` runs one of these, `make test-all` the others, too.

mod errors;
mod failover;
mod losses;
mod tls;

use leasehold_testkit::sentinel::{MASTER_NAME, Sentinels, master, replica_of};

use super::*;

/// A master, two replicas and three Sentinels.
pub(super) struct Deployment {
    pub(super) servers: Vec<RedisServer>,
    pub(super) sentinels: Sentinels,
}

impl Deployment {
    pub(super) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts servers with further arguments.
    fn start_with(arguments: &[&str]) -> Self {
        let master = master(arguments);
        let address = master.address();
        Self::around(master, &address, arguments)
    }

    /// Starts the others, which reach the master at this address.
    fn around(master: RedisServer, address: &str, arguments: &[&str]) -> Self {
        let replicas = (0..2).map(|_| replica_of(address, arguments));
        let servers: Vec<_> = std::iter::once(master).chain(replicas).collect();
        let sentinels = Sentinels::watch(address, 3, 2, &[]);
        Self { servers, sentinels }
    }

    /// The first master.
    fn first(&mut self) -> &mut RedisServer {
        &mut self.servers[0]
    }

    /// The server on this port.
    pub(super) fn at(&self, port: u16) -> &RedisServer {
        self.servers.iter().find(|server| server.port() == port).unwrap()
    }

    /// Returns when both replicas have all that the first master has written.
    pub(super) fn catch_up(&self) {
        scene::catch_up(&self.servers[0], "r", 2);
    }

    /// Returns the new master once a Sentinel names another than the first.
    async fn failed_over(&self) -> &RedisServer {
        let first = self.servers[0].port();
        let mut port = first;
        until("a failover", || {
            port = self.sentinels.master_port();
            port != first
        })
        .await;
        self.at(port)
    }

    pub(super) async fn open(&self) -> Store {
        self.open_with(&[]).await
    }

    async fn open_with(&self, more: &[(&str, &str)]) -> Store {
        watched(&self.sentinels.list(), more).await.unwrap()
    }
}

/// Opens a store over the master that these Sentinels name.
async fn watched(sentinels: &str, more: &[(&str, &str)]) -> Result<Store, LockError> {
    let items = [("failover", "true"), ("sentinelMasterName", MASTER_NAME)];
    try_open(sentinels, &[&items, more].concat()).await
}

/// Returns when this many stores are connected to a server.
async fn followed(server: &RedisServer, stores: usize) {
    let mut connection = server.connect();
    until("the stores follow", || processes(&mut connection).len() == stores).await;
}

/// Trap: redis 46
#[tokio::test]
async fn a_lock_is_renewed_and_released_after_a_failover() {
    let deployment = Deployment::start();
    let store = deployment.open().await;
    let held = take(&store, "r", MINUTE).await;
    deployment.catch_up();
    let new = deployment.at(deployment.sentinels.fail_over());
    followed(new, 1).await;
    let former: Vec<redis::Value> = ask(&mut deployment.servers[0].connect(), &["ROLE"]);
    let former: String = redis::from_redis_value(former[0].clone()).unwrap();
    assert_eq!(former, "master", "the store followed before it was demoted");
    store.renew(renewal(&held, "r", MINUTE)).await.unwrap();
    store.unlock(unlock(&held, "r")).await.unwrap();
    assert_eq!(ask::<i64>(&mut new.connect(), &["EXISTS", "r"]), 0);
    let next = take(&store, "r", MINUTE).await;
    assert!(next.token > held.token);
}
