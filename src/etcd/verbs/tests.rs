//! The parts of each write. An exclusive lock must not cost more because there are
//! shared ones.

use std::time::Duration;

use leasehold_lock::{self as lock, Attempt, Mode, RequestId};
use tokio::time::Instant;

use super::{
    acquire::{Free, try_op},
    release::Deletion,
    wait::turn_op,
};
use crate::{
    client::link::Origin,
    commit::op::Op,
    grants::local_grant::LocalGrant,
    keys::{GrantKeys, GrantName, Keys},
    lease::pool::Lease,
    record::{Record, tests::attempt},
    revision::Revision,
};

fn of(mode: Mode, request: &str) -> Attempt {
    Attempt { mode, request_id: RequestId::new(request).unwrap(), ..attempt("r") }
}

fn names() -> Keys {
    Keys::new("p")
}

fn keys(attempt: &Attempt) -> GrantKeys {
    names().grant(&attempt.resource, &GrantName::of(attempt))
}

fn lease() -> Lease {
    Lease {
        id: 1,
        asked_s: 3,
        ttl_s: 3,
        refreshed: lock::Instant::now(),
        origin: Origin::default(),
    }
}

fn record(attempt: &Attempt) -> Record {
    Record::of(attempt, 3, 0)
}

fn until() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

fn tried(attempt: &Attempt, free: Free) -> Op {
    let keys = keys(attempt);
    let op = try_op(&names(), attempt, &keys, free, until());
    op.put_grant(&keys, record(attempt).encode(), &lease())
}

fn promoted(attempt: &Attempt) -> Op {
    let keys = keys(attempt);
    let op = turn_op(&keys, ("p/r/r/q/s-1", Revision(7)), until());
    op.put_grant(&keys, record(attempt).encode(), &lease())
}

fn unlocked(attempt: &Attempt) -> Op {
    let (name, token, lease) = (GrantName::of(attempt), Revision(7), lease());
    let grant = LocalGrant { name, token, written: token, lease, attempt: None };
    Deletion::of_written(&keys(attempt), &grant, until()).op
}

#[test]
fn an_exclusive_try_has_one_comparison_and_one_put() {
    for request in ["", "secret"] {
        let attempt = of(Mode::Exclusive, request);
        assert_eq!(tried(&attempt, Free::AllKeys).counts(), [1, 1, 0]);
        assert_eq!(tried(&attempt, Free::HolderAndQueue).counts(), [2, 1, 0]);
    }
}

#[test]
fn an_exclusive_promotion_has_two_comparisons_and_two_writes() {
    assert_eq!(promoted(&of(Mode::Exclusive, "secret")).counts(), [2, 2, 1]);
}

#[test]
fn an_exclusive_unlock_has_two_comparisons_and_one_delete() {
    assert_eq!(unlocked(&of(Mode::Exclusive, "secret")).counts(), [2, 1, 0]);
}

/// `--max-txn-ops` may be as low as that.
#[test]
fn no_write_of_a_shared_grant_has_more_than_four_operations() {
    for request in ["", "secret"] {
        let attempt = of(Mode::Shared, request);
        for op in [tried(&attempt, Free::AllKeys), promoted(&attempt), unlocked(&attempt)] {
            assert!(op.nested_ops() <= 4, "{op:?}");
        }
    }
}

#[test]
fn writes_of_two_shared_grants_exclude_each_other_only_for_the_same_keys() {
    let exclusive = |op: &Op| {
        let claims = op.claims.iter().filter(|(_, mode)| *mode == Mode::Exclusive);
        claims.map(|(key, _)| key.clone()).collect::<Vec<_>>()
    };
    let (one, other) = (of(Mode::Shared, "one"), of(Mode::Shared, "other"));
    let (one, other) = (tried(&one, Free::AllKeys), promoted(&other));
    assert_eq!((exclusive(&one).len(), exclusive(&other).len()), (2, 2));
    assert!(exclusive(&one).iter().all(|key| !exclusive(&other).contains(key)));
    assert_eq!(one.claims[0], other.claims[0]);
    assert_eq!(one.claims[0].1, Mode::Shared);
}
