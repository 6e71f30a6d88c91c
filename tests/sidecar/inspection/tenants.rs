//! What an app does not see.

use super::*;

/// Trap: sidecar 29
#[tokio::test]
async fn an_app_without_an_id_does_not_see_the_locks_of_others() {
    let harness = two_tenants().await;
    let own = LockRequest { store_name: "none".into(), ..request("own") };
    take(&harness, own).await;
    take(&harness, request("r")).await;
    take(&harness, within(&["a"], "r")).await;
    let asked = ListLocksRequest { store_name: "none".into(), ..list_request(all()) };
    assert_eq!(listed(&harness, asked).await, ["own"]);
    assert_eq!(listed(&harness, list_request(all())).await, ["a/r", "r"]);
}

/// Trap: sidecar 29
#[tokio::test]
async fn a_page_token_does_not_reveal_the_names_of_others() {
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
    let harness = two_tenants().await;
    for at in 0..20 {
        take(&harness, request(&format!("secret{at}"))).await;
        let own = request(&format!("own{at}"));
        take(&harness, LockRequest { store_name: "none".into(), ..own }).await;
    }
    let mut client = inspection(&harness).await;
    let mut asked =
        ListLocksRequest { store_name: "none".into(), page_size: 1, ..list_request(all()) };
    let mut seen = Vec::new();
    loop {
        let page = client.list_locks(asked.clone()).await.unwrap().into_inner();
        seen.extend(page.locks);
        asked.page_token = page.next_page_token;
        if asked.page_token.is_empty() {
            break;
        }
        let read = BASE64_URL_SAFE_NO_PAD.decode(&asked.page_token).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&read).contains("secret"));
    }
    assert_eq!(seen.len(), 20);
}

/// Trap: sidecar 29
#[tokio::test]
async fn an_app_without_an_id_does_not_end_the_locks_of_others() {
    let harness = two_tenants().await;
    let own = LockRequest { store_name: "none".into(), ..request("own") };
    take(&harness, own).await;
    take(&harness, request("r")).await;
    take(&harness, within(&["a"], "r")).await;
    let mut client = inspection(&harness).await;
    for scope in [scope(&[], false, ""), scope(&["a"], true, ""), scope(&[], true, "app")] {
        let end = EndLocksRequest { store_name: "none".into(), all: true, ..end_scope(scope) };
        client.end_locks(end).await.unwrap();
    }
    assert_eq!(listed(&harness, list_request(all())).await, ["a/r", "r"]);
    let asked = ListLocksRequest { store_name: "none".into(), ..list_request(all()) };
    assert!(listed(&harness, asked).await.is_empty());
    let named = EndLocksRequest { store_name: "none".into(), ..end_request("app||r") };
    assert_eq!(bad_field(&client.end_locks(named).await.unwrap_err()), "resource_id");
}

#[tokio::test]
async fn a_namespace_is_refused_where_the_prefix_does_not_separate() {
    let stores = Stores::default();
    let (memory, store) = memory();
    stores.insert(named(STORE, "", APP, store));
    let harness = Harness::over(options(), Hooks::default(), stores, memory).await;
    take(&harness, request("r")).await;
    assert_eq!(listed(&harness, list_request(all())).await, ["r"]);
    let mut client = inspection(&harness).await;
    let within_a = scope(&["a"], false, "");
    let refused = client.list_locks(list_request(within_a.clone())).await.unwrap_err();
    assert_eq!(bad_field(&refused), "namespace");
    let refused = client.end_locks(end_scope(within_a)).await.unwrap_err();
    assert_eq!(bad_field(&refused), "namespace");
    let asked = GetLockRequest { namespace: segments(&["a"]), ..get_request("r") };
    assert_eq!(bad_field(&client.get_lock(asked).await.unwrap_err()), "namespace");
}
