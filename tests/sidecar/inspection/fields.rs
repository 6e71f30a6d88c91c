//! Every field bad once, over gRPC.

use leasehold_proto::locks::{ListWaitersRequest, WatchLocksRequest};

use super::*;

fn long(bytes: usize) -> String {
    "x".repeat(bytes)
}

#[tokio::test]
async fn get_lock_names_a_bad_field() {
    let harness = Harness::start().await;
    let mut client = inspection(&harness).await;
    for (asked, field) in [
        (get_request(""), "resource_id"),
        (get_request("a||b"), "resource_id"),
        (get_request(&long(1025)), "resource_id"),
        (GetLockRequest { namespace: segments(&[""]), ..get_request("r") }, "namespace"),
        (GetLockRequest { page_size: -1, ..get_request("r") }, "page_size"),
        (GetLockRequest { page_size: 1001, ..get_request("r") }, "page_size"),
        (GetLockRequest { page_token: "x".into(), ..get_request("r") }, "page_token"),
    ] {
        assert_eq!(bad_field(&client.get_lock(asked).await.unwrap_err()), field);
    }
}

#[tokio::test]
async fn list_waiters_names_a_bad_field() {
    let harness = Harness::start().await;
    let mut client = inspection(&harness).await;
    let request = || ListWaitersRequest {
        store_name: STORE.into(),
        resource_id: "r".into(),
        ..Default::default()
    };
    for (asked, field) in [
        (ListWaitersRequest { resource_id: String::new(), ..request() }, "resource_id"),
        (ListWaitersRequest { namespace: segments(&["a\n"]), ..request() }, "namespace"),
        (ListWaitersRequest { page_size: 1001, ..request() }, "page_size"),
        (ListWaitersRequest { page_token: "x".into(), ..request() }, "page_token"),
    ] {
        assert_eq!(bad_field(&client.list_waiters(asked).await.unwrap_err()), field);
    }
}

#[tokio::test]
async fn list_locks_names_a_bad_field() {
    let harness = Harness::start().await;
    let mut client = inspection(&harness).await;
    let request = || list_request(all());
    for (asked, field) in [
        (list_request(scope(&["a"; 17], false, "")), "namespace"),
        (list_request(scope(&[], false, &long(1025))), "prefix"),
        (list_request(scope(&[], false, "a\n")), "prefix"),
        (ListLocksRequest { holder_prefix: long(257), ..request() }, "holder_prefix"),
        (ListLocksRequest { page_size: 1001, ..request() }, "page_size"),
        (ListLocksRequest { page_token: "x".into(), ..request() }, "page_token"),
    ] {
        assert_eq!(bad_field(&client.list_locks(asked).await.unwrap_err()), field);
    }
}

#[tokio::test]
async fn watch_locks_names_a_bad_field() {
    let harness = Harness::start().await;
    let mut client = inspection(&harness).await;
    let request = || WatchLocksRequest { store_name: STORE.into(), ..Default::default() };
    for (asked, field) in [
        (WatchLocksRequest { resource_id: "a||b".into(), ..request() }, "resource_id"),
        (WatchLocksRequest { namespace: segments(&["a"]), ..request() }, "namespace"),
        (WatchLocksRequest { scope: Some(scope(&[""], false, "")), ..request() }, "namespace"),
        (
            WatchLocksRequest { resource_id: "r".into(), scope: Some(all()), ..request() },
            "scope",
        ),
    ] {
        assert_eq!(bad_field(&client.watch_locks(asked).await.unwrap_err()), field);
    }
}

#[tokio::test]
async fn end_locks_names_a_bad_field() {
    let harness = Harness::start().await;
    let mut client = inspection(&harness).await;
    let one = || end_request("r");
    let some = || end_scope(scope(&["a"], false, ""));
    for (asked, field) in [
        (end_request(""), "resource_id"),
        (end_request("a||b"), "resource_id"),
        (EndLocksRequest { namespace: segments(&[""]), ..one() }, "namespace"),
        (EndLocksRequest { namespace: segments(&["a"]), ..some() }, "namespace"),
        (EndLocksRequest { grant_id: "x".into(), ..one() }, "grant_id"),
        (EndLocksRequest { grant_id: "0".repeat(32), ..some() }, "grant_id"),
        (EndLocksRequest { holder_prefix: "a".into(), ..one() }, "holder_prefix"),
        (EndLocksRequest { holder_prefix: long(257), ..some() }, "holder_prefix"),
        (EndLocksRequest { scope: Some(all()), ..one() }, "scope"),
        (end_scope(all()), "all"),
        (end_scope(scope(&[], false, "")), "all"),
        (end_scope(scope(&[], false, &long(1025))), "prefix"),
        (EndLocksRequest { limit: -1, ..one() }, "limit"),
        (EndLocksRequest { limit: 1001, ..one() }, "limit"),
        (EndLocksRequest { reason: long(257), ..one() }, "reason"),
        (EndLocksRequest { reason: "a\nb".into(), ..one() }, "reason"),
    ] {
        assert_eq!(bad_field(&client.end_locks(asked).await.unwrap_err()), field);
    }
}
