//! Inspection of locks, and ending them by their public IDs.

use leasehold_lock::{
    Attempt, AttemptId, Backend, BackendError, Grant, Holder, Mode, ReleaseOf, ResourceId,
    inspect::{Inspect, Inspected, LockView, PageRequest, Selection},
};

use super::{
    port::{attempt, backend, in_time, owner, release},
    *,
};

fn r() -> ResourceId {
    ResourceId::new("r").unwrap()
}

fn named(name: &str) -> Attempt {
    Attempt { resource: ResourceId::new(name).unwrap(), ..Attempt::clone(&attempt("me")) }
}

/// A reader of `r` with this holder.
fn reader(lock_id: &str, holder: &str) -> Attempt {
    let holder = Holder::new(holder).unwrap();
    Attempt { mode: Mode::Shared, holder, ..Attempt::clone(&attempt(lock_id)) }
}

async fn held(backend: &dyn Backend, attempt: &Attempt) -> Grant {
    backend.try_lock(attempt, in_time()).await.unwrap()
}

fn seen(backend: &dyn Backend) -> &dyn Inspect {
    backend.inspect().unwrap()
}

async fn get(backend: &dyn Backend, page: &PageRequest) -> Inspected {
    seen(backend).get(&r(), page, in_time()).await.unwrap()
}

/// All pages of a list.
async fn list(
    backend: &dyn Backend,
    selection: &Selection,
    mut page: PageRequest,
) -> Vec<LockView> {
    let mut listed = Vec::new();
    loop {
        let found = seen(backend).list(selection, &page, in_time()).await.unwrap();
        assert!(found.items.len() <= page.limit, "a page of {}", found.items.len());
        listed.extend(found.items);
        page.after = found.next;
        if page.after.is_none() {
            return listed;
        }
    }
}

fn below(prefix: &str) -> Selection {
    Selection { name_prefix: prefix.into(), ..Selection::default() }
}

fn by(holder_prefix: &str) -> Selection {
    Selection { holder_prefix: holder_prefix.into(), ..Selection::default() }
}

fn of(id: &Grant) -> ReleaseOf {
    ReleaseOf::Id(id.id.unwrap())
}

#[tokio::test]
async fn a_lock_of_the_built_in_store_is_shown_as_foreign_and_is_in_no_list() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    let set = ["SET", "r", "owner", "EX", "60", "NX"];
    let () = ask(&mut server.connect(), &set);
    let found = get(&*backend, &PageRequest::first(10)).await;
    let [grant] = found.lock.grants.as_slice() else { panic!("{found:?}") };
    assert!(grant.foreign && grant.id.is_none() && grant.holder.is_none(), "{grant:?}");
    assert!(grant.remaining.is_some_and(|left| left <= MINUTE), "{grant:?}");
    assert_eq!(list(&*backend, &below(""), PageRequest::first(10)).await, []);
}

#[tokio::test]
async fn a_record_without_its_grant_is_in_no_list() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    held(&*backend, &attempt("me")).await;
    let () = ask(&mut server.connect(), &["SET", "r", "me", "EX", "30"]);
    assert_eq!(list(&*backend, &below(""), PageRequest::first(10)).await, []);
    assert!(get(&*backend, &PageRequest::first(10)).await.lock.grants[0].foreign);
}

#[tokio::test]
async fn other_keys_are_in_no_list() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    let mut connection = server.connect();
    for key in ["r/1", "\x01h{4C8}r/2", "\x01r{4C9}r/3", "\x01h", "\x01xr/4"] {
        let () = ask(&mut connection, &["SET", key, "7:ab:ab:x:1:60000:10:2:0:me", "EX", "60"]);
    }
    let _: i64 = redis::cmd("HSET")
        .arg(b"\x01r{2Rk}r/\xff")
        .arg("m")
        .arg("m")
        .query(&mut connection)
        .unwrap();
    held(&*backend, &named("r/5")).await;
    let listed = list(&*backend, &below(""), PageRequest::first(10)).await;
    let names: Vec<_> = listed.iter().map(|lock| lock.resource.as_str()).collect();
    assert_eq!(names, ["r/5"]);
}

/// Writes keys of leasehold by hand: a queue and the records of readers that are none.
pub(super) fn spoil(server: &RedisServer) {
    let mut connection = server.connect();
    for key in ["\x01h{6cy}r/1", "\x01q{6cy}r/1", "\x01r{4C8}r/2"] {
        let () = ask(&mut connection, &["SET", key, "by hand"]);
    }
    let () = ask(&mut connection, &["SET", "r/2", "\x01sby hand"]);
}

/// One such key made each list of the database fail.
#[tokio::test]
async fn a_resource_whose_keys_somebody_else_wrote_is_left_out_of_lists() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    spoil(&server);
    held(&*backend, &named("r/3")).await;
    let listed = list(&*backend, &below(""), PageRequest::first(10)).await;
    let names: Vec<_> = listed.iter().map(|lock| lock.resource.as_str()).collect();
    assert_eq!(names, ["r/3"]);
    for name in ["r/1", "r/2"] {
        let resource = ResourceId::new(name).unwrap();
        let shown = seen(&*backend).get(&resource, &PageRequest::first(10), in_time()).await;
        assert!(matches!(shown, Err(BackendError::Invalid(_))), "{name}: {shown:?}");
    }
}

#[tokio::test]
async fn what_is_held_all_the_time_is_in_one_of_the_pages() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    for limit in [1, 7, 1000] {
        let mut expected = std::collections::BTreeSet::new();
        for number in 0..150 {
            let name = format!("kept/{limit}/{number}");
            held(&*backend, &named(&name)).await;
            expected.insert(name);
        }
        let selection = below(&format!("kept/{limit}/"));
        let (mut page, mut round) = (PageRequest::first(limit), 0);
        loop {
            // Others come, so that the server moves its keys between the pages.
            for _ in 0..20 {
                held(&*backend, &named(&format!("other/{limit}/{round}"))).await;
                round += 1;
            }
            let found = seen(&*backend).list(&selection, &page, in_time()).await.unwrap();
            assert!(found.items.len() <= limit, "a page of {}", found.items.len());
            for lock in found.items {
                expected.remove(lock.resource.as_str());
            }
            page.after = found.next;
            if page.after.is_none() {
                break;
            }
        }
        assert!(expected.is_empty(), "with {limit} a page these are missing: {expected:?}");
    }
}

#[tokio::test]
async fn a_page_ends_at_its_size_in_bytes() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    for number in 0..40 {
        held(&*backend, &named(&format!("{number:0>1000}"))).await;
    }
    let page = PageRequest { bytes_max: 5_000, ..PageRequest::first(100) };
    let found = seen(&*backend).list(&below(""), &page, in_time()).await.unwrap();
    assert_eq!(found.items.len(), 5);
    assert!(list(&*backend, &below(""), page).await.len() >= 40);
}

#[tokio::test]
async fn a_holders_readers_are_found_among_many() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    for number in 0..600 {
        let holder = if number % 4 == 3 { "app/1" } else { "other" };
        held(&*backend, &reader(&number.to_string(), holder)).await;
    }
    let listed = list(&*backend, &by("app/"), PageRequest::first(10)).await;
    let [lock] = listed.as_slice() else { panic!("{} locks", listed.len()) };
    assert_eq!((lock.grants.len(), lock.grants_total), (100, 150));
    assert_eq!(list(&*backend, &by("nobody"), PageRequest::first(10)).await, []);
}

#[tokio::test]
async fn the_pages_of_readers_continue_though_the_last_one_shown_has_ended() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    let mut expected = std::collections::BTreeSet::new();
    for number in 0..20 {
        expected.insert(held(&*backend, &reader(&number.to_string(), "")).await.id);
    }
    let mut page = PageRequest::first(3);
    loop {
        let found = get(&*backend, &page).await;
        for grant in &found.lock.grants {
            expected.remove(&grant.id);
        }
        let last = found.lock.grants.last().unwrap().id.unwrap();
        backend.unlock(&release(ReleaseOf::Id(last)), in_time()).await.unwrap();
        page.after = found.next;
        if page.after.is_none() {
            break;
        }
    }
    assert!(expected.is_empty(), "not shown: {expected:?}");
}

#[tokio::test]
async fn a_grant_that_was_claimed_keeps_its_id_and_is_nobodys_to_undo() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    for mode in [Mode::Exclusive, Mode::Shared] {
        let asked = || Attempt {
            id: AttemptId::random(),
            request_id: RequestId::new("once").unwrap(),
            mode,
            ..Attempt::clone(&attempt("me"))
        };
        let attempts = [asked(), asked(), asked()];
        let grant = held(&*backend, &attempts[0]).await;
        for again in &attempts[1..] {
            assert_eq!(held(&*backend, again).await.id, grant.id, "{mode:?}");
        }
        for attempt in attempts {
            let undo = release(ReleaseOf::Attempt(Arc::new(attempt)));
            assert!(backend.unlock(&undo, in_time()).await.is_err(), "{mode:?}");
        }
        let shown = get(&*backend, &PageRequest::first(10)).await.lock.grants;
        assert_eq!(shown[0].id, grant.id, "{mode:?}");
        backend.unlock(&release(of(&grant)), in_time()).await.unwrap();
    }
}

#[tokio::test]
async fn an_id_ends_its_own_reader_and_leaves_nothing_of_it() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    let mut connection = server.connect();
    held(&*backend, &reader("kept", "")).await;
    let before: usize = ask(&mut connection, &["HLEN", "\x01r{2Rk}r"]);
    let ended = held(&*backend, &reader("ended", "")).await;
    backend.unlock(&release(of(&ended)), in_time()).await.unwrap();
    assert_eq!(ask::<usize>(&mut connection, &["HLEN", "\x01r{2Rk}r"]), before);
    let again = backend.unlock(&release(of(&ended)), in_time()).await;
    assert_eq!(again, Err(BackendError::NotHeld { held: true }));
    backend.unlock(&owner("kept"), in_time()).await.unwrap();
}

#[tokio::test]
async fn an_end_by_id_is_completed_though_its_request_is_lost() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let backend = backend(proxy.address()).await;
    let grant = held(&*backend, &attempt("me")).await;
    proxy.hold_request(call());
    assert_eq!(backend.unlock(&release(of(&grant)), in_time()).await, Ok(()));
    assert_eq!(ask::<i64>(&mut server.connect(), &["EXISTS", "r"]), 0);
}

#[tokio::test]
async fn an_end_by_id_that_is_tried_again_spares_what_was_granted_since() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address()).await;
    let (here, there) = (backend(proxy.address()).await, backend(&server.address()).await);
    let end = release(of(&held(&*there, &attempt("me")).await));
    proxy.lose_reply_to(call());
    let unknown = here.unlock(&end, in_time()).await;
    assert!(matches!(unknown, Err(BackendError::Unknown(_))), "{unknown:?}");
    held(&*there, &attempt("me")).await;
    let again = here.unlock(&end, in_time()).await;
    assert_eq!(again, Err(BackendError::NotHeld { held: true }));
    there.unlock(&owner("me"), in_time()).await.unwrap();
}

#[tokio::test]
async fn an_end_by_id_serves_who_waits() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    let grant = held(&*backend, &attempt("me")).await;
    let (waiter, asked) = (Arc::clone(&backend), attempt("next"));
    let waits = tokio::spawn(async move { waiter.lock(&asked).await });
    let mut connection = server.connect();
    until("queued", || waiting(&mut connection, "r") == 1).await;
    backend.unlock(&release(of(&grant)), in_time()).await.unwrap();
    let next = soon(waits).await.unwrap().unwrap();
    let shown = get(&*backend, &PageRequest::first(1)).await.lock.grants;
    assert_eq!(shown[0].id, next.id);
}

#[tokio::test]
async fn inspection_changes_nothing_in_the_database() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    held(&*backend, &named("x")).await;
    held(&*backend, &reader("reads", "")).await;
    let mut connection = server.connect();
    put_places(&mut connection, "r", &"f".repeat(32), 3);
    let before = changes(&mut connection);
    get(&*backend, &PageRequest::first(10)).await;
    list(&*backend, &below(""), PageRequest::first(10)).await;
    seen(&*backend).waiters(&r(), &PageRequest::first(10), in_time()).await.unwrap();
    assert_eq!(changes(&mut connection), before);
}

/// A holder that is no text made each page of the queue fail.
#[tokio::test]
async fn a_place_that_somebody_else_wrote_does_not_hide_the_others() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    let mut connection = server.connect();
    put_places(&mut connection, "r", &"f".repeat(32), 1);
    let odd = [&[b'f'; 32][..], b":ab:x:1:60000:00:2:0:me\xff"].concat();
    let _: i64 =
        redis::cmd("ZADD").arg("\x01q{2Rk}r").arg(9).arg(odd).query(&mut connection).unwrap();
    let shown =
        seen(&*backend).waiters(&r(), &PageRequest::first(10), in_time()).await.unwrap();
    let positions: Vec<_> = shown.items.iter().map(|waiter| waiter.position).collect();
    assert_eq!(positions, [1, 2]);
}

#[tokio::test]
async fn an_invented_cursor_is_refused() {
    let server = RedisServer::start();
    let backend = backend(&server.address()).await;
    let page = PageRequest { after: Some("forged".into()), ..PageRequest::first(10) };
    let invalid = |error| matches!(error, Some(BackendError::Invalid(_)));
    let seen = seen(&*backend);
    assert!(invalid(seen.list(&below(""), &page, in_time()).await.err()));
    assert!(invalid(seen.get(&r(), &page, in_time()).await.err()));
    assert!(invalid(seen.waiters(&r(), &page, in_time()).await.err()));
}
