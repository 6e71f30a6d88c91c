//! The answers of `GET`, `PTTL` and `EXISTS`, on each backend.

use leasehold_lock::{
    Holder, Mode,
    inspect::{Listing, PageRequest, Scope},
};

use crate::{
    client::{NULL, bulk, int},
    stage::{Backend, Server, Stage},
};

on_each_backend!(
    a_free_key_has_no_value,
    a_clients_lock_is_shown_with_its_value,
    a_lock_taken_otherwise_is_shown_by_its_public_id,
    a_shared_lock_is_shown_by_a_public_id,
    a_shared_lock_lasts_as_long_as_its_longest_grant,
    exists_counts_a_key_as_often_as_it_is_named,
    a_list_never_shows_a_value,
);

async fn a_free_key_has_no_value(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    assert_eq!(client.ask(&["GET", "k"]).await, NULL);
    assert_eq!(client.ask(&["PTTL", "k"]).await, int(-2));
    assert_eq!(client.ask(&["EXISTS", "k"]).await, int(0));
}

async fn a_clients_lock_is_shown_with_its_value(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    client.take("k", "the value").await;
    assert_eq!(client.ask(&["GET", "k"]).await, bulk("the value"));
    assert_eq!(client.ask(&["EXISTS", "k"]).await, int(1));
    let left = client.ask(&["PTTL", "k"]).await.number();
    assert!((1..=62_000).contains(&left), "{left}");
}

async fn a_lock_taken_otherwise_is_shown_by_its_public_id(backend: Backend) {
    let stage = Stage::on(backend).await;
    let granted = stage.take_otherwise("k", "secret", Mode::Exclusive).await;
    let mut client = stage.client().await;
    let reply = client.ask(&["GET", "k"]).await.text();
    assert_eq!(reply, granted.id.unwrap().to_string());
    assert_eq!(client.ask(&["EXISTS", "k"]).await, int(1));
    let left = client.ask(&["PTTL", "k"]).await.number();
    assert!((1..=62_000).contains(&left), "{left}");
}

async fn a_shared_lock_is_shown_by_a_public_id(backend: Backend) {
    let stage = Stage::on(backend).await;
    let one = stage.take_otherwise("k", "reader-1", Mode::Shared).await;
    let other = stage.take_otherwise("k", "reader-2", Mode::Shared).await;
    let mut client = stage.client().await;
    let reply = client.ask(&["GET", "k"]).await.text();
    assert!([one.id, other.id].map(|id| id.unwrap().to_string()).contains(&reply), "{reply}");
    assert_eq!(client.ask(&["EXISTS", "k"]).await, int(1));
}

async fn a_shared_lock_lasts_as_long_as_its_longest_grant(backend: Backend) {
    let stage = Stage::on(backend).await;
    stage.take_otherwise("k", "reader-1", Mode::Shared).await;
    stage.take_otherwise("k", "reader-2", Mode::Shared).await;
    let longer = leasehold_lock::RenewRequest {
        resource: "k".parse().unwrap(),
        lock_id: "reader-1".parse().unwrap(),
        ttl: Some(std::time::Duration::from_secs(600)),
    };
    stage.store.renew(longer).await.unwrap();
    let left = stage.client().await.ask(&["PTTL", "k"]).await.number();
    assert!(left > 70_000, "{left}");
}

async fn exists_counts_a_key_as_often_as_it_is_named(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    client.take("k", "v").await;
    assert_eq!(client.ask(&["EXISTS", "k", "free", "k"]).await, int(2));
}

async fn a_list_never_shows_a_value(backend: Backend) {
    let stage = Stage::on(backend).await;
    let mut client = stage.client().await;
    client.ask(&["CLIENT", "SETNAME", "invoices"]).await;
    client.take("k", "the-secret-value").await;
    let (scope, page) = (Scope::prefix(""), PageRequest::first(10));
    let listing = Listing { scope, holder_prefix: String::new(), page };
    let listed = stage.store.list(&listing).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    let holder = listed.items[0].grants[0].holder.as_ref().map(Holder::as_str);
    assert_eq!(holder, Some("redis/invoices"));
    let id = listed.items[0].grants[0].id.unwrap().to_string();
    assert!(!id.contains("secret"), "{id}");
    assert!(!format!("{listed:?}").contains("the-secret-value"), "{listed:?}");
}

#[tokio::test]
async fn a_holder_without_a_name_is_shown_by_its_address() {
    let stage = Stage::memory().await;
    let mut client = stage.client().await;
    let address = client.stream.local_addr().unwrap();
    client.take("k", "v").await;
    let holder = stage.look("k").await.lock.grants[0].holder.clone().unwrap();
    assert_eq!(holder.as_str(), format!("redis/{address}"));
}

/// A key as Dapr's built-in `lock.redis` writes it, for example.
async fn with_a_foreign_key(expiry: &[&str]) -> Stage {
    let stage = Stage::on(Backend::Redis).await;
    let Server::Redis(server) = &stage.server else { unreachable!() };
    let mut set = redis::cmd("SET");
    set.arg("k").arg("the-secret-owner").arg(expiry);
    set.exec(&mut server.connect()).unwrap();
    stage
}

#[tokio::test]
async fn the_value_of_a_foreign_key_is_not_shown() {
    let stage = with_a_foreign_key(&["EX", "60"]).await;
    let mut client = stage.client().await;
    let reply = client.ask(&["GET", "k"]).await.text();
    assert!(!reply.is_empty() && !reply.contains("secret"), "{reply}");
    assert_eq!(client.ask(&["EXISTS", "k"]).await, int(1));
    let left = client.ask(&["PTTL", "k"]).await.number();
    assert!((1..=60_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_foreign_key_without_an_expiry_has_no_end() {
    let stage = with_a_foreign_key(&[]).await;
    assert_eq!(stage.client().await.ask(&["PTTL", "k"]).await, int(-1));
}

#[tokio::test]
async fn a_foreign_key_excludes() {
    let stage = with_a_foreign_key(&["EX", "60"]).await;
    assert_eq!(stage.client().await.take("k", "v").await, NULL);
}
