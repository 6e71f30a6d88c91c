//! Elections: a leader that was paused comes back, and must end no grant.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    Case, cases,
    etcd::{EtcdCluster, EtcdServer, Version},
    fixture::*,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_returning_leader_ends_no_grant_under_a_kept_lease,
        a_returning_leader_ends_no_renewed_grant,
        the_first_renewal_after_an_election_moves_the_grant,
    ]
}

/// A cluster whose leader is paused.
struct Cluster {
    members: EtcdCluster,
    leader: usize,
    leader_id: u64,
}

impl Cluster {
    async fn start(version: Version) -> Self {
        let members = EtcdCluster::start(version, 3, false).await;
        let leader = members.leader().await;
        let status = members.members[leader].client().await.status().await.unwrap();
        let leader_id = status.leader();
        Self { members, leader, leader_id }
    }

    /// A backend that does not use the leader.
    async fn open(&self) -> Shared {
        let members = self.members.members.iter().enumerate();
        let others = members.filter(|(n, _)| *n != self.leader);
        let others: Vec<_> = others.map(|(_, member)| member.url.as_str()).collect();
        open(&others.join(",")).await
    }

    fn first_leader(&self) -> &EtcdServer {
        &self.members.members[self.leader]
    }

    fn another(&self) -> &EtcdServer {
        &self.members.members[(self.leader + 1) % 3]
    }

    /// Waits until the other members have a leader.
    async fn elected(&self) {
        let mut client = self.another().client().await;
        for _ in 0..1_000 {
            if let Ok(status) = client.status().await
                && ![0, self.leader_id].contains(&status.leader())
            {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("no leader was elected");
    }
}

async fn assert_held(server: &EtcdServer, names: &[String], ends: Instant) {
    sleep_until(ends - Duration::from_millis(300)).await;
    let found = keys(server, "/t/r/").await;
    let lost = names.iter().filter(|name| !found.contains(&format!("/t/r/{name}/h"))).count();
    if Instant::now() < ends {
        assert_eq!(lost, 0, "of {} grants, before the end of their TTL", names.len());
    } else {
        eprintln!("ignored: the grants were counted after the end of their TTL");
    }
}

/// The leases that a process keeps for reuse were granted by a leader
/// that stands still, and are kept alive by its successor. The first leader
/// revokes them when it comes back, so nothing may be granted under them.
/// Trap: etcd 33
async fn a_returning_leader_ends_no_grant_under_a_kept_lease(version: Version) {
    let cluster = Cluster::start(version).await;
    let (names, ttl) = (names(30), Duration::from_secs(8));
    // The first write of a process shows it the term; so each process makes one.
    let mut backends = Vec::new();
    for _ in &names {
        backends.push(cluster.open().await);
    }
    let lock_each = async || {
        join_all(names.iter().zip(&backends).map(|(name, backend)| async move {
            backend.try_lock(&attempt(name, ttl), until()).await.unwrap()
        }))
        .await
    };
    let grants = lock_each().await;
    for ((name, backend), grant) in names.iter().zip(&backends).zip(&grants) {
        unlock(backend, name, grant).await.unwrap();
    }
    let unlocked = Instant::now();
    // The leases are kept fresh for 2 s, then alive: again after 5 s.
    sleep_until(unlocked + Duration::from_millis(2_300)).await;
    cluster.first_leader().pause();
    cluster.elected().await;
    sleep_until(unlocked + Duration::from_millis(6_000)).await;
    let grants = lock_each().await;
    // By the first leader's count the leases end 9 s after it was last asked.
    sleep_until(unlocked + Duration::from_millis(11_500)).await;
    cluster.first_leader().resume();
    let ends = grants.iter().map(|grant| (grant.since + grant.ttl).running()).min().unwrap();
    assert_held(cluster.another(), &names, ends).await;
}

/// Renewals that meet an election are sent again, and answered by the
/// successor.
/// Trap: etcd 33
async fn a_returning_leader_ends_no_renewed_grant(version: Version) {
    let cluster = Cluster::start(version).await;
    let backend = cluster.open().await;
    let (names, ttl) = (names(60), Duration::from_secs(8));
    let grants = lock_all(&backend, &names, ttl).await;
    let (pausing, paused) = tokio::sync::watch::channel(false);
    let renewals: Vec<_> = names
        .iter()
        .zip(&grants)
        .map(|(name, grant)| {
            let (backend, paused) = (Shared::clone(&backend), paused.clone());
            let (name, lock_id) = (name.clone(), grant.lock_id.clone());
            tokio::spawn(async move {
                // The last of them is under way when the leader stops.
                loop {
                    let renewed = renew(&backend, &name, &lock_id, ttl).await;
                    if *paused.borrow()
                        && let Ok(renewed) = renewed
                    {
                        return renewed;
                    }
                }
            })
        })
        .collect();
    sleep(Duration::from_millis(500)).await;
    cluster.first_leader().pause();
    let since = Instant::now();
    pausing.send_replace(true);
    let renewed = join_all(renewals).await.into_iter().map(Result::unwrap);
    let ends = renewed.map(|renewed| (renewed.since + renewed.ttl).running());
    let grants: Vec<_> = names.into_iter().zip(ends).collect();
    // By the first leader's count the leases end 9 s after it was last asked.
    sleep_until(since + Duration::from_millis(9_300)).await;
    cluster.first_leader().resume();
    sleep_until(since + Duration::from_millis(10_500)).await;
    let found = keys(cluster.another(), "/t/r/").await;
    let now = Instant::now();
    let lives = grants.iter().filter(|(_, ends)| now < *ends);
    let lost = lives.clone().filter(|(name, _)| !found.contains(&format!("/t/r/{name}/h")));
    assert_eq!(lost.count(), 0, "of {} grants, before the end of their TTL", lives.count());
}

/// A renewal in a new term moves the grant. A grant that nobody renews stays.
/// Trap: etcd 33
async fn the_first_renewal_after_an_election_moves_the_grant(version: Version) {
    let mut server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let names = names(20);
    let grants = lock_all(&backend, &names, TTL).await;
    let mut before = Vec::new();
    for name in &names {
        before.push(holder(&server, name).await.unwrap());
    }
    server.kill();
    server.restart();
    server.ready().await;
    for (n, (name, before)) in names.iter().zip(&before).enumerate().skip(1) {
        eventually("it is moved", async || {
            // A renewal on a busy machine may leave the move to the next one.
            let _ = renew(&backend, name, &grants[n].lock_id, TTL).await;
            let now = holder(&server, name).await.expect("the grant has ended");
            now.create_revision() == before.create_revision() && now.lease() != before.lease()
        })
        .await;
    }
    assert_eq!(holder(&server, &names[0]).await.unwrap().lease(), before[0].lease());
    for (name, grant) in names.iter().zip(&grants) {
        unlock(&backend, name, grant).await.unwrap();
    }
    assert!(keys(&server, "/t/r/").await.is_empty());
}
