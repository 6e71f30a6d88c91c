//! A Redis Cluster of servers on loopback ports.

use redis::{Connection, FromRedisValue, ToRedisArgs};

use crate::{
    ports::free_port,
    redis::{RedisServer, RedisSetup},
    sentinel::wait_until,
};

/// How many slots a Cluster has.
const SLOTS: u16 = 1 << 14;
/// How many keys are moved at a time.
const KEYS_MOVED: usize = 100;
/// After how many milliseconds without an answer a node counts as gone. Short, because a wait
/// ends after some seconds without a master.
const GONE_AFTER: &str = "1000";
/// The same in a Cluster without replicas, where nothing waits for that, and a busy machine has
/// more time.
const GONE_AFTER_WITHOUT_REPLICAS: &str = "5000";

/// Masters, which share the slots, and their replicas.
#[derive(Debug)]
pub struct RedisCluster {
    /// The masters, and behind them the replicas: the first of each master, then the second.
    pub nodes: Vec<RedisServer>,
    masters: usize,
}

impl RedisCluster {
    /// Starts masters, each with this many replicas, and returns when all know each other.
    pub fn start(masters: usize, replicas: usize) -> Self {
        Self::start_with(masters, replicas, |_| RedisSetup::default())
    }

    /// Starts them with what `setup` says for each.
    pub fn start_with(
        masters: usize,
        replicas: usize,
        setup: impl Fn(usize) -> RedisSetup,
    ) -> Self {
        let gone_after = if replicas == 0 { GONE_AFTER_WITHOUT_REPLICAS } else { GONE_AFTER };
        let numbers = 0..masters * (1 + replicas);
        let nodes = numbers.map(|number| node(setup(number), gone_after)).collect();
        let cluster = Self { nodes, masters };
        cluster.join(replicas);
        cluster
    }

    /// The addresses of the masters, as `redisHost` lists them.
    pub fn list(&self) -> String {
        let masters = self.nodes.iter().take(self.masters);
        masters.map(RedisServer::address).collect::<Vec<_>>().join(",")
    }

    /// The slots that a master has at first.
    pub fn share(&self, master: usize) -> std::ops::Range<u16> {
        let edge = |at: usize| u16::try_from(usize::from(SLOTS) * at / self.masters).unwrap();
        edge(master)..edge(master + 1)
    }

    /// The master that has a slot at first.
    pub fn first_owner(&self, slot: u16) -> usize {
        (0..self.masters).find(|master| self.share(*master).contains(&slot)).unwrap()
    }

    /// The ID of a node.
    pub fn id(&self, node: usize) -> String {
        ask(&mut self.nodes[node].connect(), &["CLUSTER", "MYID"])
    }

    /// Moves a slot from one master to another.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.open_slot(slot, from, to);
        self.move_keys(slot, from, to);
        self.close_slot(slot, to);
    }

    /// Begins to move a slot.
    pub fn open_slot(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let set = |at: usize, state: &str, other: usize| {
            let () = ask(
                &mut self.nodes[at].connect(),
                &["CLUSTER", "SETSLOT", &slot, state, &self.id(other)],
            );
        };
        set(to, "IMPORTING", from);
        set(from, "MIGRATING", to);
    }

    /// Moves the keys of a slot.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        let mut source = self.nodes[from].connect();
        let (slot, most) = (slot.to_string(), KEYS_MOVED.to_string());
        loop {
            let keys: Vec<Vec<u8>> =
                ask(&mut source, &["CLUSTER", "GETKEYSINSLOT", &slot, &most]);
            if keys.is_empty() {
                return;
            }
            self.move_these_keys(&keys, from, to);
        }
    }

    /// Moves these keys.
    pub fn move_these_keys(&self, keys: &[impl ToRedisArgs], from: usize, to: usize) {
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(self.nodes[to].port()).arg("").arg(0).arg(5000);
        let mut source = self.nodes[from].connect();
        let _: String = migrate.arg("KEYS").arg(keys).query(&mut source).unwrap();
    }

    /// Ends the move of a slot.
    pub fn close_slot(&self, slot: u16, to: usize) {
        let (slot, id) = (slot.to_string(), self.id(to));
        // The new owner first: otherwise nobody would have the slot.
        let others = (0..self.masters).filter(|master| *master != to);
        for node in std::iter::once(to).chain(others) {
            let mut set = redis::cmd("CLUSTER");
            set.arg("SETSLOT").arg(&slot).arg("NODE").arg(&id);
            // One that is down learns it from the others.
            if let Ok(client) = redis::Client::open(self.nodes[node].url())
                && let Ok(mut connection) = client.get_connection()
            {
                let _ = set.exec(&mut connection);
            }
        }
    }

    /// Whether a node counts as a master, by its own view.
    pub fn is_master(&self, node: usize) -> bool {
        let client = redis::Client::open(self.nodes[node].url()).unwrap();
        let role = client.get_connection().and_then(|mut connection| {
            redis::cmd("ROLE").query::<Vec<redis::Value>>(&mut connection)
        });
        role.is_ok_and(|role| {
            matches!(role.first(), Some(redis::Value::BulkString(role)) if role == b"master")
        })
    }

    /// Adds a node that was removed, and returns when all know each other again.
    pub fn meet(&self, node: usize) {
        for other in (0..self.masters).filter(|other| *other != node) {
            introduce(&mut self.nodes[node].connect(), &self.nodes[other]);
        }
        self.know_each_other();
    }

    fn know_each_other(&self) {
        let all = format!("cluster_known_nodes:{}", self.nodes.len());
        for server in &self.nodes {
            let mut connection = server.connect();
            wait_until("the nodes know each other", || {
                let info: String = ask(&mut connection, &["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok") && info.contains(&all)
            });
        }
    }

    fn join(&self, replicas: usize) {
        let mut connections: Vec<_> = self.nodes.iter().map(RedisServer::connect).collect();
        for (number, connection) in connections.iter_mut().enumerate() {
            let epoch = (number + 1).to_string();
            let () = ask(connection, &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
            if number < self.masters {
                let share = self.share(number);
                let (first, last) = (share.start.to_string(), (share.end - 1).to_string());
                let () = ask(connection, &["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
        }
        // A node takes an epoch only while it knows no other.
        for connection in &mut connections {
            for other in &self.nodes {
                introduce(connection, other);
            }
        }
        self.know_each_other();
        for replica in 0..self.masters * replicas {
            let master = self.id(replica % self.masters);
            let connection = &mut connections[self.masters + replica];
            wait_until("the replica knows its master", || {
                let mut replicate = redis::cmd("CLUSTER");
                replicate.arg("REPLICATE").arg(&master).exec(connection).is_ok()
            });
        }
        for connection in connections.iter_mut().skip(self.masters) {
            wait_until("the replica follows", || {
                let info: String = ask(connection, &["INFO", "replication"]);
                info.contains("master_link_status:up")
            });
        }
    }
}

fn introduce(connection: &mut Connection, other: &RedisServer) {
    let (port, bus) = (other.port().to_string(), bus_port(other));
    let () = ask(connection, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
}

fn node(mut setup: RedisSetup, gone_after: &str) -> RedisServer {
    let bus = free_port().to_string();
    let arguments = [
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        gone_after,
        "--cluster-port",
        &bus,
        "--repl-diskless-sync-delay",
        "0",
    ];
    setup.arguments.splice(0..0, arguments.map(Into::into));
    RedisServer::launch(&setup).unwrap()
}

/// The port that other nodes connect to.
fn bus_port(server: &RedisServer) -> String {
    let mut connection = server.connect();
    let mut port = |name: &str| -> String {
        ask::<Vec<String>>(&mut connection, &["CONFIG", "GET", name]).remove(1)
    };
    let announced = port("cluster-announce-bus-port");
    if announced == "0" { port("cluster-port") } else { announced }
}

fn ask<T: FromRedisValue>(connection: &mut Connection, command: &[&str]) -> T {
    let mut request = redis::cmd(command[0]);
    request.arg(&command[1..]);
    request.query(connection).unwrap()
}
