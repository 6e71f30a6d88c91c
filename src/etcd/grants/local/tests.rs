use std::time::Duration;

use leasehold_lock::AttemptId;
use tokio::time::advance;

use super::*;
use crate::{client::link::Origin, lease::pool::Lease};

fn grant(token: u64) -> LocalGrant {
    LocalGrant {
        name: named("me"),
        token: Revision(token),
        written: Revision(token),
        lease: lease(1),
        attempt: Some(AttemptId::random()),
    }
}

fn remove(grants: &mut Made, name: &GrantName, token: u64) -> Option<LocalGrant> {
    let resource = ResourceId::new("r").unwrap();
    grants.remove_if(&resource, name, |grant| grant.token == Revision(token))
}

fn named(lock_id: &str) -> GrantName {
    let lock_id = LockId::new(lock_id).unwrap();
    GrantName { mode: Mode::Exclusive, lock_id, request: None }
}

fn lease(id: i64) -> Lease {
    let origin = Origin::default();
    Lease { id, asked_s: 3, ttl_s: 3, refreshed: Instant::now(), origin }
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_known_until_it_may_have_expired() {
    let (mut grants, resource) = (Made::default(), ResourceId::new("r").unwrap());
    grants.insert(&resource, grant(5));
    let me = LockId::new("me").unwrap();
    assert_eq!(grants.named(&resource, &me).unwrap().token, Revision(5));
    assert!(grants.named(&resource, &LockId::new("you").unwrap()).is_none());
    advance(Duration::from_secs(2)).await;
    grants.refreshed(&resource, &named("me"), 1, Instant::now());
    advance(Duration::from_secs(2)).await;
    assert!(grants.named(&resource, &me).is_some(), "renewed");
    advance(Duration::from_secs(1)).await;
    assert!(grants.named(&resource, &me).is_none());
    grants.purge(Instant::now());
    assert!(grants.exclusive.is_empty());
}

#[test]
fn only_the_grant_with_the_token_is_removed() {
    let (mut grants, resource) = (Made::default(), ResourceId::new("r").unwrap());
    grants.insert(&resource, grant(5));
    assert!(remove(&mut grants, &named("me"), 4).is_none());
    assert!(remove(&mut grants, &named("me"), 5).is_some());
}

/// Trap: etcd 32
#[test]
fn a_grant_under_another_lease_is_no_longer_this_process() {
    let (mut grants, resource) = (Made::default(), ResourceId::new("r").unwrap());
    grants.insert(&resource, grant(5));
    let mut found = |lease, written| {
        grants.found(&resource, &named("me"), (Revision(5), lease, Revision(written)))
    };
    assert_eq!(found(1, 5).0.unwrap().lease.id, 1);
    let (known, ended) = found(2, 4);
    assert!(
        known.is_none() && ended.is_none(),
        "it was read before it was moved to this lease"
    );
    let (known, ended) = found(2, 6);
    assert!(known.is_none());
    assert_eq!(ended.unwrap().lease.id, 1, "it is to be revoked");
    assert!(grants.exclusive.is_empty());
}

/// Trap: etcd 32
#[tokio::test(start_paused = true)]
async fn a_keep_alive_of_another_lease_refreshes_nothing() {
    let (mut grants, resource) = (Made::default(), ResourceId::new("r").unwrap());
    grants.insert(&resource, grant(5));
    let before = Instant::now();
    advance(Duration::from_secs(1)).await;
    grants.refreshed(&resource, &named("me"), 2, Instant::now());
    assert_eq!(grants.exclusive[&resource].lease.refreshed, before);
}

fn shared(lock_id: &str, token: u64) -> LocalGrant {
    let name = GrantName { mode: Mode::Shared, ..named(lock_id) };
    LocalGrant { name, ..grant(token) }
}

#[test]
fn a_shared_grant_is_forgotten_alone() {
    let (mut grants, resource) = (Made::default(), ResourceId::new("r").unwrap());
    let (one, other) = (shared("one", 5), shared("other", 5));
    for grant in [&one, &other] {
        assert!(grants.insert(&resource, grant.clone()).is_none());
    }
    assert!(remove(&mut grants, &one.name, 5).is_some());
    assert!(grants.named(&resource, &one.name.lock_id).is_none());
    assert!(grants.named(&resource, &other.name.lock_id).is_some());
}

#[test]
fn of_two_grants_with_a_lock_id_the_later_one_is_alive() {
    let (mut grants, resource) = (Made::default(), ResourceId::new("r").unwrap());
    grants.insert(&resource, grant(5));
    grants.insert(&resource, shared("me", 6));
    let me = LockId::new("me").unwrap();
    assert_eq!(grants.named(&resource, &me).unwrap().token, Revision(6));
    grants.insert(&resource, grant(7));
    assert_eq!(grants.named(&resource, &me).unwrap().token, Revision(7));
}
