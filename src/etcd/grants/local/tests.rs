use std::time::Duration;

use etcd_client::{KeyValue, proto::PbKeyValue};
use leasehold_lock::AttemptId;
use tokio::time::advance;

use super::*;
use crate::{
    client::link::Origin,
    keys::Keys,
    lease::pool::Lease,
    record::{Record, tests::attempt},
};

/// A process that made a grant with each of these tokens.
fn made(grants: impl IntoIterator<Item = LocalGrant>) -> (Grants, ResourceId) {
    let (process, resource) = (Grants::new(Leases::offline()), ResourceId::new("r").unwrap());
    for grant in grants {
        process.insert(&resource, grant);
    }
    (process, resource)
}

fn grant(token: u64) -> LocalGrant {
    LocalGrant {
        name: named("me"),
        token: Revision(token),
        written: Revision(token),
        lease: lease(1),
        attempt: Some(AttemptId::random()),
    }
}

/// The grant with the token 5 after a move to a lease.
fn moved(id: i64, written: u64) -> LocalGrant {
    LocalGrant { written: Revision(written), lease: lease(id), ..grant(5) }
}

fn shared(lock_id: &str, token: u64) -> LocalGrant {
    let name = GrantName { mode: Mode::Shared, ..named(lock_id) };
    LocalGrant { name, ..grant(token) }
}

fn named(lock_id: &str) -> GrantName {
    let lock_id = LockId::new(lock_id).unwrap();
    GrantName { mode: Mode::Exclusive, lock_id, request: None }
}

fn lease(id: i64) -> Lease {
    let origin = Origin::default();
    Lease { id, asked_s: 3, ttl_s: 3, refreshed: Instant::now(), origin }
}

/// What is known of the grant with the token 5 after it was read so.
fn found(grants: &Grants, lease: i64, written: i64) -> Option<LocalGrant> {
    let (mut made, keys) = (attempt("r"), Keys::new("t"));
    made.lock_id = LockId::new("me").unwrap();
    let pair = KeyValue(PbKeyValue {
        key: keys.holder(&made.resource).into(),
        value: Record::of(&made, 3, 0).encode(),
        create_revision: 5,
        mod_revision: written,
        version: 1,
        lease,
    });
    grants.found(&Held::of(&keys, &made.resource, &pair).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_known_until_it_may_have_expired() {
    let (grants, resource) = made([grant(5)]);
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
    assert!(grants.made.lock().exclusive.is_empty());
}

#[tokio::test]
async fn only_the_grant_with_the_token_is_forgotten() {
    let (grants, resource) = made([grant(5)]);
    grants.forget(&resource, &named("me"), (Revision(4), Revision(4)));
    assert_eq!(grants.leases.revoking(), 0);
    grants.forget(&resource, &named("me"), (Revision(5), Revision(5)));
    assert!(grants.made.lock().exclusive.is_empty() && grants.leases.revoking() == 1);
}

/// Two claims of a grant may take it to another lease and back, which was kept for reuse.
/// Trap: etcd 32
#[tokio::test]
async fn a_grant_that_was_moved_since_is_not_forgotten() {
    for lease in [1, 2] {
        let (grants, resource) = made([grant(5)]);
        grants.insert(&resource, moved(lease, 7));
        let revoking = grants.leases.revoking();
        grants.forget(&resource, &named("me"), (Revision(5), Revision(5)));
        let known = grants.named(&resource, &named("me").lock_id).unwrap();
        assert_eq!((known.lease.id, grants.leases.revoking()), (lease, revoking));
    }
}

/// A repeated request may claim a grant before the request that made it has seen its answer.
/// Trap: etcd 32
#[tokio::test]
async fn a_grant_that_was_moved_before_it_was_known_keeps_its_lease() {
    let (grants, resource) = made([]);
    assert!(grants.moved(&resource, 1, moved(2, 6)));
    grants.insert(&resource, grant(5));
    let known = grants.named(&resource, &named("me").lock_id).unwrap();
    assert_eq!((known.lease.id, known.written), (2, Revision(6)));
}

/// Trap: etcd 32
#[tokio::test]
async fn a_grant_under_another_lease_is_no_longer_this_process() {
    let (grants, _) = made([grant(5)]);
    assert_eq!(found(&grants, 1, 5).unwrap().lease.id, 1);
    assert!(found(&grants, 2, 4).is_none());
    assert_eq!(grants.leases.revoking(), 0, "it was read before it came to this lease");
    assert!(found(&grants, 2, 6).is_none());
    assert!(grants.made.lock().exclusive.is_empty() && grants.leases.revoking() == 1);
}

/// Two renewals at once may learn in any order what they have written.
/// Trap: etcd 32
#[tokio::test]
async fn of_two_moves_the_later_one_is_remembered() {
    for [first, last] in [[6, 7], [7, 6]] {
        let (grants, resource) = made([grant(5)]);
        let is_last = grants.moved(&resource, first - 5, moved(first - 4, first as u64));
        assert!(is_last, "nothing later is known yet");
        let is_last = grants.moved(&resource, last - 5, moved(last - 4, last as u64));
        assert_eq!(is_last, last == 7);
        let known = grants.named(&resource, &named("me").lock_id).unwrap();
        assert_eq!((known.lease.id, known.written), (3, Revision(7)));
        assert!(found(&grants, 3, 7).is_some());
    }
}

/// Trap: etcd 32
#[tokio::test(start_paused = true)]
async fn a_keep_alive_of_another_lease_refreshes_nothing() {
    let (grants, resource) = made([grant(5)]);
    let before = Instant::now();
    advance(Duration::from_secs(1)).await;
    grants.refreshed(&resource, &named("me"), 2, Instant::now());
    assert_eq!(grants.made.lock().exclusive[&resource].lease.refreshed, before);
}

#[tokio::test]
async fn a_shared_grant_is_forgotten_alone() {
    let (one, other) = (shared("one", 5), shared("other", 5));
    let (grants, resource) = made([one.clone(), other.clone()]);
    grants.forget(&resource, &one.name, (Revision(5), Revision(5)));
    assert!(grants.named(&resource, &one.name.lock_id).is_none());
    assert!(grants.named(&resource, &other.name.lock_id).is_some());
}

#[tokio::test]
async fn of_two_grants_with_a_lock_id_the_later_one_is_alive() {
    let (grants, resource) = made([grant(5), shared("me", 6)]);
    let me = LockId::new("me").unwrap();
    assert_eq!(grants.named(&resource, &me).unwrap().token, Revision(6));
    grants.insert(&resource, grant(7));
    assert_eq!(grants.named(&resource, &me).unwrap().token, Revision(7));
}
