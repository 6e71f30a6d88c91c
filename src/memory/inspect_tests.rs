//! Inspection of memory, in paused time.

use std::time::Duration;

use leasehold_lock::{
    Attempt, Backend as _, Clock, Context, Grant, Holder, ReleaseOf, ResourceId, Settings,
    inspect::{EndCause, Inspect as _, Mirror, PageRequest, Selection},
};
use tokio::time::{Instant, sleep};

use super::{
    Memory,
    table_tests::{attempt, owner, reader, release},
};

fn memory() -> Memory {
    Memory::new(&Context::new(Settings::default(), Clock::from_fn(|| 1_500_000)))
}

async fn held(memory: &Memory, attempt: &Attempt) -> Grant {
    memory.try_lock(attempt, Instant::now()).await.unwrap()
}

fn named(name: &str) -> Attempt {
    Attempt { resource: ResourceId::new(name).unwrap(), ..attempt(60_000) }
}

fn r() -> ResourceId {
    ResourceId::new("r").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_shown_with_its_remaining_ttl() {
    let memory = memory();
    let holder = Holder::new("app/1").unwrap();
    let asked = Attempt { holder: holder.clone(), ..attempt(60_000) };
    let grant = held(&memory, &asked).await;
    sleep(Duration::from_secs(10)).await;
    let found = memory.get(&r(), &PageRequest::first(10), Instant::now()).await.unwrap();
    let shown = &found.lock.grants[0];
    assert_eq!(shown.id, grant.id);
    assert_eq!(shown.holder, holder);
    assert_eq!(shown.remaining, Some(Duration::from_secs(50)));
    assert_eq!(shown.since_unix_ms, Some(1_500));
    assert_eq!((found.lock.grants_total, found.waiters, found.next), (1, 0, None));
}

#[tokio::test(start_paused = true)]
async fn a_list_begins_at_its_prefix_and_ends_behind_it() {
    let memory = memory();
    for name in ["a", "b", "b/1", "b/2", "b0", "c"] {
        held(&memory, &named(name)).await;
    }
    let selection = Selection { name_prefix: "b/".into(), ..Selection::default() };
    let page = memory.list(&selection, &PageRequest::first(10), Instant::now()).await.unwrap();
    let mut names: Vec<_> = page.items.iter().map(|lock| lock.resource.as_str()).collect();
    names.sort_unstable();
    assert_eq!((names, page.next), (vec!["b/1", "b/2"], None));
}

#[tokio::test(start_paused = true)]
async fn what_is_held_all_the_time_is_in_one_of_the_pages() {
    let memory = memory();
    for number in 0..500 {
        held(&memory, &named(&format!("kept/{number}"))).await;
    }
    let (mut page, mut listed) = (PageRequest::first(7), 0);
    let mut round = 0;
    loop {
        // Others come and go between the pages.
        held(&memory, &named(&format!("other/{round}"))).await;
        round += 1;
        let found = memory.list(&Selection::default(), &page, Instant::now()).await.unwrap();
        let is_kept = |name: &str| name.starts_with("kept/");
        listed += found.items.iter().filter(|lock| is_kept(lock.resource.as_str())).count();
        page.after = found.next;
        if page.after.is_none() {
            break;
        }
    }
    assert_eq!(listed, 500);
}

#[tokio::test(start_paused = true)]
async fn a_page_ends_at_its_size_in_bytes() {
    let memory = memory();
    for number in 0..20 {
        held(&memory, &named(&format!("{number:0>1000}"))).await;
    }
    let page = PageRequest { bytes_max: 5_000, ..PageRequest::first(100) };
    let found = memory.list(&Selection::default(), &page, Instant::now()).await.unwrap();
    assert!(found.items.len() < 6 && found.next.is_some(), "{}", found.items.len());
}

#[tokio::test(start_paused = true)]
async fn an_invented_cursor_is_refused_or_begins_anywhere() {
    let memory = memory();
    held(&memory, &attempt(1000)).await;
    for (forged, is_after) in [("", false), ("\0", false), ("r", true), ("x", true)] {
        let page = PageRequest { after: Some(forged.into()), ..PageRequest::first(10) };
        let found = memory.list(&Selection::default(), &page, Instant::now()).await.unwrap();
        assert_eq!((found.items.is_empty(), found.next), (is_after, None), "{forged:?}");
        assert!(memory.get(&r(), &page, Instant::now()).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_claimed_keeps_its_id() {
    let memory = memory();
    let mut asked = attempt(60_000);
    asked.request_id = leasehold_lock::RequestId::new("secret").unwrap();
    let grant = held(&memory, &asked).await;
    let again = Attempt { id: leasehold_lock::AttemptId::random(), ..asked.clone() };
    assert_eq!(held(&memory, &again).await.id, grant.id);
    let undone =
        memory.unlock(&release(ReleaseOf::Attempt(asked.into())), Instant::now()).await;
    assert!(undone.is_err(), "it was claimed from the attempt");
    let found = memory.get(&r(), &PageRequest::first(1), Instant::now()).await.unwrap();
    assert_eq!(found.lock.grants[0].id, grant.id);
}

#[tokio::test(start_paused = true)]
async fn an_id_ends_one_reader_and_no_successor() {
    let memory = memory();
    let (first, second) =
        (held(&memory, &reader(60_000)).await, held(&memory, &reader(60_000)).await);
    let by_id = release(ReleaseOf::Id(first.id.unwrap()));
    memory.unlock(&by_id, Instant::now()).await.unwrap();
    assert!(memory.unlock(&by_id, Instant::now()).await.is_err(), "it has ended");
    memory.unlock(&owner(&second), Instant::now()).await.unwrap();
}

/// The events of the mirror until it has caught up.
async fn events(mirror: &Mirror) -> Vec<(String, usize, Vec<EndCause>)> {
    // Lets the task that keeps the mirror run.
    sleep(Duration::from_millis(1)).await;
    mirror.all_states()
}

#[tokio::test(start_paused = true)]
async fn a_mirror_has_what_is_held_and_then_each_change() {
    let memory = std::sync::Arc::new(memory());
    held(&memory, &named("before")).await;
    let mirror = std::sync::Arc::new(Mirror::default());
    let watching = tokio::spawn({
        let (memory, mirror) = (memory.clone(), mirror.clone());
        async move { memory.watch(&mirror).await }
    });
    assert_eq!(events(&mirror).await, [("before".to_owned(), 1, vec![])]);
    let short = named("short");
    let short = Attempt { ttl: attempt(100).ttl, ..short };
    held(&memory, &short).await;
    sleep(Duration::from_millis(200)).await;
    let grant = held(&memory, &attempt(1000)).await;
    memory.unlock(&owner(&grant), Instant::now()).await.unwrap();
    assert_eq!(
        events(&mirror).await,
        [
            ("before".to_owned(), 1, vec![]),
            ("short".to_owned(), 0, vec![EndCause::Expired]),
            ("r".to_owned(), 0, vec![EndCause::Released]),
        ]
    );
    watching.abort();
    assert!(watching.await.unwrap_err().is_cancelled());
    held(&memory, &attempt(1000)).await;
    let noted = memory.table.with(|table, _| table.ledger.watchers());
    assert_eq!(noted, 0, "nobody notes changes any more");
}
