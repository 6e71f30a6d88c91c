//! INSPECTION: who waits.

use std::time::Duration;

use anyhow::ensure;
use leasehold_proto::locks::{ListWaitersRequest, LockMode, WaiterInfo};
use tokio::time::{Instant, sleep};

use crate::{
    expect::Expect as _,
    grant::Ask,
    store::Store,
    waiter::HAND_OVER_MAX,
    world::{World, hold, secs},
};

const POLL: Duration = Duration::from_millis(20);

pub(super) async fn counted(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    for number in 1..=3 {
        queue_until_listed(&store, &Ask::of(&resource), number).await?;
        let waiters = store.get_lock(&resource).await.or_fail("GetLock")?.waiters;
        ensure!(waiters == number, "{number} wait, GetLock returns {waiters}");
    }
    Ok(())
}

/// Starts a Lock and returns once the store reports this many waiters.
pub(super) async fn queue_until_listed(
    store: &Store,
    ask: &Ask,
    waiting: i32,
) -> anyhow::Result<()> {
    let ask = ask.clone().within(secs(60));
    store.queue(&ask).await?;
    let deadline = Instant::now() + HAND_OVER_MAX;
    loop {
        let shown = store.get_lock(&ask.request.resource_id).await.or_fail("GetLock")?.waiters;
        if shown >= waiting {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{waiting} wait, GetLock returns {shown}");
        sleep(POLL).await;
    }
}

/// Holds the resource and queues waiters, the holders being their numbers.
async fn queue(store: &Store, resource: &str, count: i32) -> anyhow::Result<()> {
    hold(store, &Ask::of(resource)).await?;
    for number in 1..=count {
        let ask = Ask::of(resource).holder(&number.to_string());
        queue_until_listed(store, &ask, number).await?;
    }
    Ok(())
}

/// A page of the waiters, and the token of the next one.
pub(super) async fn waiters_page(
    store: &Store,
    resource: &str,
    page_size: i32,
    page_token: &str,
) -> anyhow::Result<(Vec<WaiterInfo>, String)> {
    let asked = ListWaitersRequest {
        resource_id: resource.to_owned(),
        page_size,
        page_token: page_token.to_owned(),
        ..ListWaitersRequest::default()
    };
    let page = store.waiters_raw(asked).await.or_fail("ListWaiters")?;
    Ok((page.waiters, page.next_page_token))
}

fn in_order(waiters: &[WaiterInfo], expected: &[i32]) -> anyhow::Result<()> {
    let shown: Vec<_> =
        waiters.iter().map(|waiter| (waiter.position, waiter.holder.clone())).collect();
    let expected: Vec<_> =
        expected.iter().map(|number| (*number, number.to_string())).collect();
    ensure!(shown == expected, "the waiters must be {expected:?}, they are {shown:?}");
    Ok(())
}

pub(super) async fn in_queue_order(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    queue(&store, &resource, 3).await?;
    let (waiters, next) = waiters_page(&store, &resource, 0, "").await?;
    in_order(&waiters, &[1, 2, 3])?;
    ensure!(next.is_empty(), "there is another page: {next}");
    let mode = waiters[0].mode();
    ensure!(mode == LockMode::Exclusive, "the mode is {mode:?}");
    Ok(())
}

pub(super) async fn in_pages(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    queue(&store, &resource, 5).await?;
    let (mut shown, mut token) = (Vec::new(), String::new());
    for _ in 0..10 {
        let (page, next) = waiters_page(&store, &resource, 2, &token).await?;
        ensure!(page.len() <= 2, "a page of {} waiters, asked for 2", page.len());
        shown.extend(page);
        token = next;
        if token.is_empty() {
            break;
        }
    }
    in_order(&shown, &[1, 2, 3, 4, 5])
}

pub(super) async fn of_a_free_resource(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let (waiters, next) = waiters_page(&store, &resource, 0, "").await?;
    ensure!(waiters.is_empty() && next.is_empty(), "{waiters:?} {next}");
    Ok(())
}
