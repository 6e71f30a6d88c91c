//! Getting and listing over gRPC.

use leasehold_proto::locks::{ListWaitersRequest, ListWaitersResponse, LockMode, LockRequest};
use tonic::Code;

use super::*;
use crate::{harness::HOLDER, stream::acquired};

#[tokio::test]
async fn a_held_lock_is_shown_with_its_holder_and_grant() {
    let harness = Harness::start().await;
    let grant = take(&harness, within(&["a", "b"], "r")).await;
    let asked = GetLockRequest { namespace: segments(&["a", "b"]), ..get_request("r") };
    let shown = inspection(&harness).await.get_lock(asked).await.unwrap().into_inner();
    let lock = shown.lock.unwrap();
    assert_eq!((lock.resource_id.as_str(), &lock.namespace), ("r", &segments(&["a", "b"])));
    assert_eq!((lock.grants_total, shown.waiters), (1, 0));
    assert_eq!(lock.grants[0].grant_id, grant.grant_id);
    assert_eq!(lock.grants[0].grant_id.len(), 32);
    assert_eq!(lock.grants[0].holder, HOLDER);
    assert_eq!(lock.grants[0].mode(), LockMode::Exclusive);
    assert!(lock.grants[0].remaining.is_some() && lock.grants[0].since.is_some());
    assert!(!lock.grants[0].foreign);
}

#[tokio::test]
async fn a_free_name_has_no_grants() {
    let harness = Harness::start().await;
    let lock = get(&harness, "r").await.lock.unwrap();
    assert_eq!((lock.resource_id.as_str(), lock.grants.len(), lock.grants_total), ("r", 0, 0));
}

#[tokio::test]
async fn a_refused_lock_shows_the_grant_in_its_way() {
    let harness = Harness::start().await;
    let grant = take(&harness, request("r")).await;
    let since = get(&harness, "r").await.lock.unwrap().grants[0].since.unwrap();
    let refused = lock(&mut harness.locks().await, request("r")).await.unwrap_err();
    let shown = |key| reason(&refused, key).1;
    assert_eq!(shown("grantID"), Some(grant.grant_id));
    assert_eq!(shown("mode").as_deref(), Some("exclusive"));
    assert_eq!(shown("since"), Some(since.to_string()));
}

#[tokio::test]
async fn a_stream_gets_its_grant_id() {
    let harness = Harness::start().await;
    let request = LockRequest { immediate: false, ..request("r") };
    let mut stream = harness.locks().await.lock_stream(request).await.unwrap().into_inner();
    let grant = acquired(&mut stream).await;
    let lock = get(&harness, "r").await.lock.unwrap();
    assert_eq!(lock.grants[0].grant_id, grant.grant_id);
}

#[tokio::test]
async fn readers_are_listed_in_pages() {
    let harness = Harness::start().await;
    let mut expected = Vec::new();
    for _ in 0..3 {
        let reader = LockRequest { mode: LockMode::Shared.into(), ..request("r") };
        expected.push(take(&harness, reader).await.grant_id);
    }
    expected.sort();
    let (mut client, mut shown) = (inspection(&harness).await, Vec::new());
    let mut asked = GetLockRequest { page_size: 2, ..get_request("r") };
    loop {
        let page = client.get_lock(asked.clone()).await.unwrap().into_inner();
        let lock = page.lock.unwrap();
        assert_eq!(lock.grants_total, 3);
        shown.extend(lock.grants.into_iter().map(|grant| grant.grant_id));
        asked.page_token = page.next_page_token;
        if asked.page_token.is_empty() {
            break;
        }
    }
    shown.sort();
    assert_eq!(shown, expected);
}

async fn waiters(harness: &Harness, page_token: &str) -> ListWaitersResponse {
    let asked = ListWaitersRequest {
        store_name: STORE.into(),
        resource_id: "r".into(),
        page_size: 1,
        page_token: page_token.into(),
        ..Default::default()
    };
    inspection(harness).await.list_waiters(asked).await.unwrap().into_inner()
}

#[tokio::test]
async fn waiters_are_listed_in_the_order_of_the_queue() {
    let harness = Harness::start().await;
    take(&harness, request("r")).await;
    let mut waiting = Vec::new();
    for (at, label) in (1..).zip(["first", "second"]) {
        let asked = LockRequest { immediate: false, label: label.into(), ..request("r") };
        let mut client = harness.locks().await;
        waiting.push(tokio::spawn(async move { lock(&mut client, asked).await }));
        waited_for_by(&harness, "r", at).await;
    }
    let first = waiters(&harness, "").await;
    let second = waiters(&harness, &first.next_page_token).await;
    assert_eq!(second.next_page_token, "");
    for (position, page, label) in [(1, first, "first"), (2, second, "second")] {
        let [waiter] = &page.waiters[..] else { panic!("{page:?}") };
        assert_eq!((waiter.position, &waiter.holder), (position, &format!("{HOLDER}/{label}")));
        assert!(waiter.since.is_some());
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_scope_lists_what_it_says() {
    let harness = Harness::start().await;
    for (namespace, key) in
        [(&[][..], "k1"), (&[], "x"), (&["a"], "k2"), (&["a", "b"], "k3"), (&["ab"], "k4")]
    {
        take(&harness, within(namespace, key)).await;
    }
    for (scope, expected) in [
        (scope(&[], false, ""), &["k1", "x"][..]),
        (scope(&[], false, "k"), &["k1"]),
        (all(), &["a/b/k3", "a/k2", "ab/k4", "k1", "x"]),
        (scope(&[], true, "k"), &["a/b/k3", "a/k2", "ab/k4", "k1"]),
        (scope(&["a"], false, ""), &["a/k2"]),
        (scope(&["a"], true, ""), &["a/b/k3", "a/k2"]),
        (scope(&["a"], true, "k3"), &["a/b/k3"]),
        (scope(&["b"], true, ""), &[]),
    ] {
        assert_eq!(listed(&harness, list_request(scope.clone())).await, expected, "{scope:?}");
    }
    let without = ListLocksRequest { scope: None, ..list_request(all()) };
    assert_eq!(listed(&harness, without).await, ["k1", "x"]);
}

#[tokio::test]
async fn a_list_can_be_of_one_holder() {
    let harness = Harness::start().await;
    take(&harness, LockRequest { label: "import".into(), ..request("r") }).await;
    take(&harness, request("s")).await;
    let holder_prefix = format!("{HOLDER}/imp");
    let asked = ListLocksRequest { holder_prefix, ..list_request(all()) };
    assert_eq!(listed(&harness, asked).await, ["r"]);
}

#[tokio::test]
async fn a_list_has_pages() {
    let harness = Harness::start().await;
    for key in ["a", "b", "c", "d", "e"] {
        take(&harness, request(key)).await;
    }
    let (mut client, mut shown, mut pages) = (inspection(&harness).await, Vec::new(), 0);
    let mut asked = ListLocksRequest { page_size: 2, ..list_request(all()) };
    loop {
        let page = client.list_locks(asked.clone()).await.unwrap().into_inner();
        assert!(page.locks.len() <= 2);
        shown.extend(page.locks);
        pages += 1;
        asked.page_token = page.next_page_token;
        if asked.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(names(&shown), ["a", "b", "c", "d", "e"]);
    assert!(pages >= 3);
}

#[tokio::test]
async fn a_page_token_is_for_the_same_list_only() {
    let harness = two_tenants().await;
    for key in ["a", "b", "c"] {
        take(&harness, request(key)).await;
    }
    let mut client = inspection(&harness).await;
    let asked = ListLocksRequest { page_size: 1, ..list_request(all()) };
    let page_token = client.list_locks(asked.clone()).await.unwrap().into_inner();
    let page_token = page_token.next_page_token;
    assert!(!page_token.is_empty());
    let asked = ListLocksRequest { page_token: page_token.clone(), ..asked };
    client.list_locks(asked.clone()).await.unwrap();
    for other in [
        ListLocksRequest { scope: Some(scope(&[], false, "")), ..asked.clone() },
        ListLocksRequest { scope: Some(scope(&[], true, "a")), ..asked.clone() },
        ListLocksRequest { holder_prefix: "a".into(), ..asked.clone() },
        ListLocksRequest { store_name: "none".into(), ..asked.clone() },
        ListLocksRequest { page_token: "0".repeat(32), ..asked.clone() },
        ListLocksRequest { page_token: "forged".into(), ..asked },
    ] {
        let refused = client.list_locks(other).await.unwrap_err();
        assert_eq!(bad_field(&refused), "page_token");
    }
    let other = GetLockRequest { page_token, ..get_request("a") };
    assert_eq!(bad_field(&client.get_lock(other).await.unwrap_err()), "page_token");
}

#[tokio::test]
async fn an_unknown_store_is_refused_as_for_locks() {
    let harness = Harness::start().await;
    let mut client = inspection(&harness).await;
    for store_name in ["", "other"] {
        let asked = GetLockRequest { store_name: store_name.into(), ..get_request("r") };
        let refused = client.get_lock(asked).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound);
        assert_eq!(reason(&refused, "").0, "STORE_NOT_FOUND");
    }
}

/// Trap: sidecar 25
#[tokio::test]
async fn no_answer_has_a_secret() {
    let harness = Harness::start().await;
    let asked = LockRequest { request_id: "secret-request".into(), ..request("r") };
    let grant = take(&harness, asked).await;
    let mut client = inspection(&harness).await;
    let shown = [
        format!("{:?}", client.get_lock(get_request("r")).await.unwrap()),
        format!("{:?}", client.list_locks(list_request(all())).await.unwrap()),
        format!("{:?}", client.end_locks(end_request("r")).await.unwrap()),
    ];
    let token = grant.fencing_token.to_string();
    for shown in shown {
        assert!(shown.contains(&grant.grant_id), "{shown}");
        for secret in [grant.lock_id.as_str(), "secret-request", &token] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
