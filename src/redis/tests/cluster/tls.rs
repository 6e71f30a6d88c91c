//! A Cluster whose nodes have a port for TLS.

use std::ffi::OsString;

use leasehold_testkit::{ports::free_port, redis::RedisSetup};

use super::*;
use crate::tls::{Files, INSECURE};

#[tokio::test]
async fn nodes_are_found_and_redirections_followed_over_tls() {
    let (files, ports) = (Files::new(), [free_port(), free_port()]);
    let cluster = RedisCluster::start_with(2, 0, |node| {
        let more = ["--tls-cluster".to_owned(), "yes".to_owned()];
        let arguments = files.arguments(ports[node]).into_iter().chain(more);
        RedisSetup { arguments: arguments.map(OsString::from).collect(), ..Default::default() }
    });
    // The other node and its port are learned from this one.
    let store = clustered(&format!("127.0.0.1:{}", ports[0]), &INSECURE).await.unwrap();
    for master in 0..2 {
        take(&store, &name_at(&cluster, master), MINUTE).await;
    }
    let moved = names_at(&cluster, 0).nth(1).unwrap();
    cluster.move_slot(slot(&moved), 0, 1);
    take(&store, &moved, MINUTE).await;
    assert_eq!(ask::<i64>(&mut cluster.nodes[1].connect(), &["EXISTS", &moved]), 1);
}
