//! Inspection of the locks, and ending one of them by its public ID.

use std::sync::Arc;

use leasehold_lock::{
    Attempt, BackendError, GrantId, Holder, Mode, ReleaseOf, ResourceId,
    inspect::{Inspect, Inspected, LockView, Page, PageRequest, Selection, WaiterView},
};
use leasehold_testkit::proxy::Proxy;

use crate::{
    Case, cases,
    etcd::{EtcdServer, Version},
    fixture::*,
};

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_replay_leaves_the_grants_public_id_and_its_time,
        a_foreign_key_is_shown_by_name_only,
        keys_of_others_are_not_listed,
        a_list_passes_over_long_queues,
        readers_that_take_several_reads_are_one_item,
        a_page_without_a_wanted_holder_still_goes_on,
        waiters_of_two_processes_are_listed_in_their_order,
        an_entry_of_another_value_is_shown_without_its_label,
        inspecting_writes_nothing,
        any_process_ends_one_of_many_readers_by_its_id,
        an_end_by_id_spares_the_next_grant,
        an_end_by_id_whose_reply_was_lost_is_completed,
    ]
}

fn inspect(backend: &Shared) -> &dyn Inspect {
    backend.inspect().unwrap()
}

async fn get(backend: &Shared, resource: &str) -> Inspected {
    let resource = ResourceId::new(resource).unwrap();
    inspect(backend).get(&resource, &PageRequest::first(1_000), until()).await.unwrap()
}

/// All pages of a list, of up to `limit` items each.
pub(crate) async fn list(
    backend: &Shared,
    selection: &Selection,
    limit: usize,
) -> Vec<LockView> {
    let (mut page, mut locks) = (PageRequest::first(limit), Vec::new());
    loop {
        let Page { items, next } =
            inspect(backend).list(selection, &page, until()).await.unwrap();
        assert!(items.len() <= limit);
        locks.extend(items);
        page.after = next;
        if page.after.is_none() {
            return locks;
        }
    }
}

async fn listed(backend: &Shared, prefix: &str) -> Vec<String> {
    let selection = Selection { name_prefix: prefix.to_owned(), ..Selection::default() };
    let locks = list(backend, &selection, 10).await;
    locks.into_iter().map(|lock| lock.resource.as_str().to_owned()).collect()
}

fn labelled(resource: &str, label: &str) -> Attempt {
    Attempt { holder: Holder::new(label).unwrap(), ..attempt(resource, TTL) }
}

async fn waiters(backend: &Shared, resource: &str) -> Vec<WaiterView> {
    let resource = ResourceId::new(resource).unwrap();
    let page = PageRequest::first(1_000);
    inspect(backend).waiters(&resource, &page, until()).await.unwrap().items
}

async fn end(
    backend: &Shared,
    resource: &str,
    id: Option<GrantId>,
) -> Result<(), BackendError> {
    backend.unlock(&release(resource, ReleaseOf::Id(id.unwrap())), until()).await
}

async fn a_replay_leaves_the_grants_public_id_and_its_time(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let grant = a.try_lock(&repeatable("r", "secret"), until()).await.unwrap();
    let since = get(&a, "r").await.lock.grants[0].since_unix_ms;
    assert!(since.is_some());
    for backend in [&b, &a] {
        let again = backend.try_lock(&repeatable("r", "secret"), until()).await.unwrap();
        assert!(!again.created && again.id == grant.id && grant.id.is_some());
        let shown = get(backend, "r").await.lock.grants.remove(0);
        assert_eq!((shown.id, shown.since_unix_ms), (grant.id, since));
    }
}

async fn a_foreign_key_is_shown_by_name_only(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    for key in ["/t/r/r/h", "/t/r/r/h/somebody", "/t/r/other/h"] {
        server.client().await.put(key, "hello", None).await.unwrap();
    }
    let shown = get(&backend, "r").await.lock;
    assert_eq!(shown.grants_total, 2);
    assert!(shown.grants.iter().all(|grant| grant.foreign && grant.id.is_none()), "{shown:?}");
    assert!(listed(&backend, "").await.is_empty());
}

/// Trap: etcd 29
async fn keys_of_others_are_not_listed(version: Version) {
    let server = EtcdServer::start(version).await;
    let (backend, deeper) = (
        open(&server.url).await,
        open_with(&[("endpoints", &server.url), ("keyPrefixPath", "/t/x")]).await,
    );
    let names = ["a", "a%", "a/b", "a%2Fb", "a0", "ab", "ü"];
    for name in names {
        try_lock(&backend, name).await.unwrap();
        try_lock(&deeper, &format!("deeper/{name}")).await.unwrap();
    }
    let record = holder(&server, "a").await.unwrap();
    for key in ["/t/r/a%2f/h", "/t/r/b", "/t/r/c/hx", "/t/r0/h", "/t/q/h", "/u/h"] {
        server.client().await.put(key, record.value(), None).await.unwrap();
    }
    for prefix in ["", "a", "a%", "a/", "a%2", "ü", "b", "deeper"] {
        let mut found = listed(&backend, prefix).await;
        found.sort();
        let mut expected = names.to_vec();
        expected.retain(|name| name.starts_with(prefix));
        expected.sort_unstable();
        assert_eq!(found, expected, "below {prefix:?}");
    }
}

async fn a_list_passes_over_long_queues(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    for name in ["a", "b", "c"] {
        try_lock(&backend, name).await.unwrap();
    }
    let mut client = server.client().await;
    for resource in ["a", "b", "empty"] {
        for block in 0..10 {
            let puts: Vec<_> = (0..100)
                .map(|n| format!("/t/r/{resource}/q/s.0-{:016x}", block * 100 + n))
                .map(|key| etcd_client::TxnOp::put(key, "", None))
                .collect();
            client.txn(etcd_client::Txn::new().and_then(puts)).await.unwrap();
        }
    }
    assert_eq!(listed(&backend, "").await, ["a", "b", "c"]);
    assert_eq!(get(&backend, "a").await.waiters, 1_000);
    assert_eq!(waiters(&backend, "a").await.len(), 1_000);
}

async fn readers_that_take_several_reads_are_one_item(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    try_lock(&a, "before").await.unwrap();
    let grants = read_many(&a, "many", 450).await;
    try_lock(&a, "next").await.unwrap();
    let locks = list(&b, &Selection::default(), 2).await;
    let shown: Vec<_> = locks
        .iter()
        .map(|lock| (lock.resource.as_str(), lock.grants.len(), lock.grants_total))
        .collect();
    assert_eq!(shown, [("before", 1, 1), ("many", 100, 450), ("next", 1, 1)]);
    let many = ResourceId::new("many").unwrap();
    let (mut page, mut shown) = (PageRequest::first(200), Vec::new());
    loop {
        let found = inspect(&b).get(&many, &page, until()).await.unwrap();
        assert_eq!(found.lock.grants_total, 450);
        shown.extend(found.lock.grants.into_iter().map(|grant| grant.id));
        page.after = found.next;
        if page.after.is_none() {
            break;
        }
    }
    let mut expected: Vec<_> = grants.iter().map(|grant| grant.id).collect();
    expected.sort();
    assert_eq!(shown, expected);
}

async fn a_page_without_a_wanted_holder_still_goes_on(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    try_lock(&backend, "first").await.unwrap();
    let record = holder(&server, "first").await.unwrap();
    let mut client = server.client().await;
    for block in 0..9 {
        let puts: Vec<_> = (0..100)
            .map(|n| format!("/t/r/{}/h", block * 100 + n))
            .map(|key| etcd_client::TxnOp::put(key, record.value(), None))
            .collect();
        client.txn(etcd_client::Txn::new().and_then(puts)).await.unwrap();
    }
    backend.try_lock(&labelled("z", "app/1"), until()).await.unwrap();
    let selection = Selection { holder_prefix: "app/".to_owned(), ..Selection::default() };
    let found = list(&backend, &selection, 10).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].resource.as_str(), "z");
    assert_eq!(listed(&backend, "").await.len(), 902);
}

async fn waiters_of_two_processes_are_listed_in_their_order(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    try_lock(&a, "r").await.unwrap();
    let mut waits = Vec::new();
    for (number, backend) in [&b, &a, &a, &b, &b].into_iter().enumerate() {
        let mut waiter = labelled("r", &number.to_string());
        if number == 2 {
            waiter.mode = Mode::Shared;
        }
        waits.push(lock_as(backend, waiter));
        queued(&server, "r", number + 1).await;
    }
    let shown = waiters(&b, "r").await;
    for (number, waiter) in shown.iter().enumerate() {
        assert_eq!(waiter.position, number + 1);
        assert_eq!(waiter.holder.as_ref().unwrap().as_str(), number.to_string());
        assert_eq!(waiter.mode == Mode::Shared, number == 2);
        assert!(waiter.since_unix_ms.is_some());
    }
    assert_eq!((shown.len(), get(&a, "r").await.waiters), (5, 5));
    // A page goes on behind a waiter that has left meanwhile.
    let (resource, mut page) = (ResourceId::new("r").unwrap(), PageRequest::first(3));
    page.after = inspect(&a).waiters(&resource, &page, until()).await.unwrap().next;
    waits.remove(2).abort();
    queued(&server, "r", 4).await;
    let rest = inspect(&a).waiters(&resource, &page, until()).await.unwrap();
    let labels: Vec<_> =
        rest.items.iter().map(|waiter| waiter.holder.as_ref().unwrap().as_str()).collect();
    assert_eq!((labels, rest.next), (vec!["3", "4"], None));
}

async fn an_entry_of_another_value_is_shown_without_its_label(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let key = "/t/r/r/q/s.0-0000000000000001s";
    server.client().await.put(key, "5e0c", None).await.unwrap();
    let shown = waiters(&backend, "r").await;
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].holder.as_ref(), shown[0].since_unix_ms), (None, None));
}

async fn inspecting_writes_nothing(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let grant = try_lock(&a, "r").await.unwrap();
    let wait = lock(&a, "r");
    queued(&server, "r", 1).await;
    let before = server.revision().await;
    assert_eq!(get(&b, "r").await.lock.grants[0].id, grant.id);
    assert_eq!(listed(&b, "").await, ["r"]);
    assert_eq!(waiters(&b, "r").await.len(), 1);
    assert_eq!(get(&b, "free").await.lock.grants_total, 0);
    assert_eq!(server.revision().await, before);
    wait.abort();
}

async fn any_process_ends_one_of_many_readers_by_its_id(version: Version) {
    let server = EtcdServer::start(version).await;
    let (a, b) = (open(&server.url).await, open(&server.url).await);
    let mut grants = read_many(&a, "r", 150).await;
    // Looked for among all, and then where it was shown.
    for _ in 0..2 {
        let ended = grants.pop().unwrap();
        end(&b, "r", ended.id).await.unwrap();
        let again = end(&b, "r", ended.id).await;
        assert_eq!(again, Err(BackendError::NotHeld { held: true }));
        let unlocked = unlock(&a, "r", &ended).await;
        assert_eq!(unlocked, Err(BackendError::NotHeld { held: true }));
        assert_eq!(get(&b, "r").await.lock.grants_total, grants.len());
    }
    let elsewhere = end(&b, "other", grants[0].id).await;
    assert_eq!(elsewhere, Err(BackendError::NotHeld { held: false }));
    assert_eq!(readers(&server, "r").await.len(), grants.len());
}

/// Trap: etcd 22
async fn an_end_by_id_spares_the_next_grant(version: Version) {
    let server = EtcdServer::start(version).await;
    let backend = open(&server.url).await;
    let first = try_lock(&backend, "r").await.unwrap();
    let wait = lock(&backend, "r");
    queued(&server, "r", 1).await;
    end(&backend, "r", first.id).await.unwrap();
    let second = soon(wait).await;
    assert_eq!(end(&backend, "r", first.id).await, Err(BackendError::NotHeld { held: true }));
    renew(&backend, "r", &second.lock_id, TTL).await.unwrap();
    end(&backend, "r", second.id).await.unwrap();
    assert_eq!(end(&backend, "r", second.id).await, Err(BackendError::NotHeld { held: false }));
}

/// Trap: etcd 21
async fn an_end_by_id_whose_reply_was_lost_is_completed(version: Version) {
    let server = EtcdServer::start(version).await;
    let proxy = Proxy::start(&server.url).await;
    let (backend, other) = (open(proxy.address()).await, open(&server.url).await);
    let grant = try_lock(&other, "r").await.unwrap();
    let end = Arc::new(release("r", ReleaseOf::Id(grant.id.unwrap())));
    // The grant is found by a read of its resource's range. Only the delete has its key, with
    // the length before it, as a key to operate on.
    let keys = keys(&server, "/t/r/r/").await;
    let [key] = keys.as_slice() else { panic!("{keys:?}") };
    let length = char::from(u8::try_from(key.len()).unwrap());
    proxy.lose_reply_to(&format!("\n{length}{key}"));
    let before = proxy.admitted();
    backend.unlock(&end, until()).await.unwrap();
    eventually("the reply was lost", async || proxy.admitted() > before).await;
    let later = try_lock(&other, "r").await.unwrap();
    let again = backend.unlock(&end, until()).await;
    assert_eq!(again, Err(BackendError::NotHeld { held: true }));
    renew(&other, "r", &later.lock_id, TTL).await.unwrap();
}
