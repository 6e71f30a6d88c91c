//! Ending grants that a store reports without a public ID.

use leasehold_lock::{
    LockError,
    inspect::{EndOf, Ended},
};
use leasehold_proto::locks as pb;

use crate::{
    fake::{Asked, Fake},
    inspection::{DECLARED, ID, Inspected, end},
};

/// Ends the grants of `r` through a store that reports these grants.
async fn end_of(grants: &[&str], limit: usize) -> (Fake, Result<Ended, LockError>) {
    let grant = |id: &&str| pb::GrantInfo {
        grant_id: (*id).into(),
        mode: pb::LockMode::Shared.into(),
        foreign: id.is_empty(),
        ..Default::default()
    };
    let lock = pb::LockState {
        resource_id: "r".into(),
        grants: grants.iter().map(grant).collect(),
        grants_total: i32::try_from(grants.len()).unwrap(),
        ..Default::default()
    };
    let mut fake = Fake::inspected(&DECLARED, Inspected::with(vec![lock])).await;
    let store = fake.open(&[]).await;
    let ended = end(&store, EndOf::Resource("r".parse().unwrap(), None), limit).await;
    (fake, ended)
}

#[tokio::test]
async fn a_foreign_grant_is_ended_by_force_where_its_resource_is_named() {
    let (mut fake, ended) = end_of(&[""], 1).await;
    let ended = ended.unwrap();
    assert!(ended.locks[0].grants[0].foreign && !ended.more, "{ended:?}");
    let Asked::Unlock(asked) = fake.next().await else { panic!("not unlocked") };
    assert_eq!((asked.resource_id.as_str(), asked.force), ("r", true));
}

#[tokio::test]
async fn foreign_grants_are_ended_by_one_force() {
    let (mut fake, ended) = end_of(&[""; 50], 50).await;
    assert_eq!(ended.unwrap().locks[0].grants_total, 50);
    assert!(matches!(fake.next().await, Asked::Unlock(_)));
    fake.must_be_left_alone().await;
}

#[tokio::test]
async fn foreign_grants_are_not_ended_beyond_the_limit() {
    let (mut fake, ended) = end_of(&[""; 50], 49).await;
    let Err(LockError::InvalidRequest(violation)) = ended else { panic!("{ended:?}") };
    assert_eq!(violation.field, "limit");
    fake.must_be_left_alone().await;
}

#[tokio::test]
async fn a_foreign_grant_is_left_alone_beside_one_of_leasehold() {
    let (mut fake, ended) = end_of(&["", ID], 100).await;
    let ended = ended.unwrap();
    assert_eq!((ended.locks[0].grants_total, ended.more), (1, true));
    assert_eq!(ended.locks[0].grants[0].id, ID.parse().ok());
    fake.must_be_left_alone().await;
}
