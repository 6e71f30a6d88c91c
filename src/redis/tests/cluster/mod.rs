//! A Redis Cluster.
//!
//! `make test` runs some of these, `make test-all` the others, too.

mod clocks;
mod errors;
mod failover;
mod inspection;
mod load;
mod moves;
mod tls;

use leasehold_testkit::redis_cluster::RedisCluster;

use super::*;

async fn open_cluster(cluster: &RedisCluster) -> Store {
    clustered(&cluster.list(), &[]).await.unwrap()
}

async fn clustered(nodes: &str, more: &[(&str, &str)]) -> Result<Store, LockError> {
    try_open(nodes, &[&[("redisType", "cluster")], more].concat()).await
}

/// A name whose slot a master has at first.
fn name_at(cluster: &RedisCluster, master: usize) -> String {
    names_at(cluster, master).next().unwrap()
}

fn names_at(cluster: &RedisCluster, master: usize) -> impl Iterator<Item = String> {
    let share = cluster.share(master);
    (0..).map(|n| format!("r{n}")).filter(move |name| share.contains(&slot(name)))
}

/// The slot of any name.
fn slot_of_key(cluster: &RedisCluster, name: &str) -> u16 {
    ask(&mut cluster.nodes[0].connect(), &["CLUSTER", "KEYSLOT", name])
}

/// How many wait for a resource, as this node counts.
fn waiting_at(cluster: &RedisCluster, node: usize, resource: &str) -> usize {
    waiting(&mut cluster.nodes[node].connect(), resource)
}
