//! Lock: waiting, hand-over, deadlines.

use std::time::Duration;

use anyhow::{bail, ensure};
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::{
    case::Cases,
    expect::{Expect as _, not_before, wait_ended},
    grant::Ask,
    store::Store,
    words::Readable,
    world::{EXPIRY_SLACK, FREE_MAX, World, hold, hold_by, hold_soon, ms, must_be_held, secs},
};

/// How often a deadline is raced with a grant, in rounds of simultaneous races.
const RACE_ROUNDS: usize = 5;
const RACES_AT_ONCE: u64 = 100;

/// How many waits may end with an unknown outcome (a slow backend may cause that) before one
/// must end with WAIT_DEADLINE.
const WAITS_MAX: usize = 5;

/// The TTL of a raced wait: long enough to notice a grant that was left behind, short enough
/// to wait for its end.
const RACE_TTL: Duration = Duration::from_secs(12);

/// How many waits are in flight while other calls must be served.
const OPEN_WAITS: usize = 300;

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("Lock of a free resource is granted at once", at_once);
    cases.core("Lock of a held resource waits", waits);
    cases.core("a release hands the resource to the waiter", on_release);
    cases.core("a wait without a deadline is served", without_deadline);
    cases.core("a waiter's grant is exclusive", exclusive);
    cases.core("a waiter's lock ID unlocks its grant", unlocks);
    cases.core("a waiter's TTL counts from the end of its wait", full_ttl);
    cases.core("a wait may have a deadline of 60 days", long_deadline);
    cases.core("`waited` covers the time for which the resource was held", covers_wait);
    cases.core("`waited` is no longer than the call took", not_longer);
    cases.core("a wait that reaches its deadline ends with WAIT_DEADLINE", deadline);
    cases.core("a wait does not end before its deadline is near", not_early);
    cases.core("after WAIT_DEADLINE nothing is held", deadline_holds_nothing);
    cases.core("after WAIT_DEADLINE the next waiter is served", deadline_frees_place);
    // Trap: all 9
    cases.core("a deadline that meets a grant leaves nothing held", deadline_race);
    cases.alone();
    cases.core("300 waits leave room for other calls on their connection", leave_room);
    cases.alone();
    cases.core("all of ten waiters are served in the end", all_served);
}

fn lock(resource: &str) -> Ask {
    Ask::of(resource).within(secs(60))
}

async fn at_once(world: World) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource()).within(secs(5));
    world.store().lock(&ask).await.or_fail("Lock of a free resource").map(drop)
}

async fn waits(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    store.queue(&lock(&resource)).await?.stays("the resource is held").await
}

async fn on_release(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waiter = store.queue(&lock(&resource)).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    waiter.granted().await.map(drop)
}

async fn without_deadline(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waiter = store.queue(&Ask::of(&resource)).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    waiter.granted().await.map(drop)
}

async fn exclusive(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waiter = store.queue(&lock(&resource)).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    waiter.granted().await?;
    must_be_held(&store, &resource, "a waiter was granted the resource").await
}

async fn unlocks(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waiter = store.queue(&lock(&resource)).await?;
    store.release(&grant).await.or_fail("Unlock")?;
    store.release(&waiter.granted().await?).await.or_fail("the waiter's Unlock")
}

async fn full_ttl(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let first = hold(&store, &Ask::of(&resource)).await?;
    let waiter = store.queue(&lock(&resource).ttl(ms(1200))).await?;
    tokio::time::sleep(ms(900)).await;
    store.release(&first).await.or_fail("Unlock")?;
    let grant = waiter.granted().await?;
    let deadline = Instant::now() + grant.ttl + EXPIRY_SLACK;
    let next = hold_by(&store, &Ask::of(&resource), deadline, "after the waiter's TTL").await?;
    not_before(next.answered_at, grant.lives_until(), "another was granted the resource")
}

async fn long_deadline(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.store(), Ask::of(&world.resource()));
    hold(&store, &ask).await?;
    let mut waiter = store.queue(&ask.within(secs(60 * 24 * 60 * 60))).await?;
    waiter.stays("its deadline is far").await
}

async fn covers_wait(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let first = hold(&store, &Ask::of(&resource)).await?;
    let waiter = store.queue(&lock(&resource)).await?;
    let queued_at = Instant::now();
    tokio::time::sleep(ms(500)).await;
    let held_for = queued_at.elapsed();
    store.release(&first).await.or_fail("Unlock")?;
    let waited = waiter.granted().await?.waited;
    ensure!(
        waited >= held_for,
        "the answer says {}, the wait took {} and more",
        Readable(waited),
        Readable(held_for)
    );
    Ok(())
}

async fn not_longer(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let first = hold(&store, &Ask::of(&resource)).await?;
    let waiter = store.queue(&lock(&resource)).await?;
    store.release(&first).await.or_fail("Unlock")?;
    let grant = waiter.granted().await?;
    let took = grant.answered_at - grant.asked_at;
    ensure!(
        grant.waited <= took,
        "the answer says {}, the call took {}",
        Readable(grant.waited),
        Readable(took)
    );
    Ok(())
}

async fn deadline(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    for _ in 0..WAITS_MAX {
        if wait_ended(store.lock(&Ask::of(&resource).within(secs(5))).await)? {
            return Ok(());
        }
    }
    bail!("each of {WAITS_MAX} waits ended with OUTCOME_UNKNOWN, none with WAIT_DEADLINE")
}

async fn not_early(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    let asked_at = Instant::now();
    let _ = store.lock(&Ask::of(&resource).within(ms(1000))).await;
    // The answer may come 50 ms before the deadline, and some servers use coarse clocks.
    not_before(Instant::now(), asked_at + ms(900), "the wait ended")
}

async fn deadline_holds_nothing(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waited = store.lock(&Ask::of(&resource).within(ms(400))).await;
    ensure!(waited.is_err(), "the Lock was granted a held resource");
    store.release(&grant).await.or_fail("Unlock")?;
    hold_soon(&store, &Ask::of(&resource), "the only waiter's deadline has passed")
        .await
        .map(drop)
}

async fn deadline_frees_place(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let first = store.queue(&Ask::of(&resource).within(secs(4))).await?;
    let second = store.queue(&lock(&resource)).await?;
    let ended = first.answer_within(secs(10)).await?;
    ensure!(ended.is_err(), "the Lock was granted a held resource");
    store.release(&grant).await.or_fail("Unlock")?;
    second.granted().await.map(drop)
}

async fn deadline_race(world: World) -> anyhow::Result<()> {
    let store = world.fresh();
    for round in 0..RACE_ROUNDS {
        let races = (0..RACES_AT_ONCE).map(|number| {
            let (store, resource) = (&store, world.resource());
            async move {
                // The wait ends 450 ms after its start, and the release comes up to 5 ms
                // before or after that.
                let release_after = Duration::from_micros(445_000 + number * 100);
                race_deadline(store, &resource, release_after).await
            }
        });
        for (number, outcome) in join_all(races).await.into_iter().enumerate() {
            outcome.map_err(|error| error.context(format!("round {round}, race {number}")))?;
        }
    }
    Ok(())
}

async fn race_deadline(
    store: &Store,
    resource: &str,
    release_after: Duration,
) -> anyhow::Result<()> {
    let grant = hold(store, &Ask::of(resource)).await?;
    let waiter = store.start(&Ask::of(resource).ttl(RACE_TTL).within(ms(500)));
    tokio::time::sleep(release_after).await;
    store.release(&grant).await.or_fail("Unlock")?;
    let mut free_within = FREE_MAX;
    match waiter.answer().await? {
        Ok(grant) => store.release(&grant).await.or_fail("the waiter's Unlock")?,
        // The store was so late that its transport ended the call and may have dropped a
        // grant.
        Err(rejection) if rejection.is_bare() => {
            free_within = RACE_TTL + EXPIRY_SLACK;
        }
        // If the outcome was unknown at the deadline, the store must settle it, which is
        // checked below.
        ended => drop(wait_ended(ended)?),
    }
    let deadline = Instant::now() + free_within;
    let what = "the wait ended as the resource was released";
    hold_by(store, &Ask::of(resource), deadline, what).await.map(drop)
}

async fn leave_room(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.fresh(), world.resource());
    hold(&store, &Ask::of(&resource)).await?;
    let waiters: Vec<_> = (0..OPEN_WAITS).map(|_| store.start(&lock(&resource))).collect();
    for number in 0..20 {
        let grant = hold(&store, &Ask::of(&world.resource())).await?;
        store.release(&grant).await.or_fail(&format!("Unlock {number}"))?;
    }
    let answered_count = waiters.iter().filter(|waiter| waiter.is_answered()).count();
    ensure!(answered_count == 0, "{answered_count} of {OPEN_WAITS} waits were refused");
    Ok(())
}

async fn all_served(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = hold(&store, &Ask::of(&resource)).await?;
    let waiters = (0..10).map(|_| {
        let (store, ask) = (&store, lock(&resource));
        async move {
            let grant = store.lock(&ask).await.or_fail("a waiter")?;
            store.release(&grant).await.or_fail("a waiter's Unlock")
        }
    });
    let (released, served) = tokio::join!(store.release(&grant), join_all(waiters));
    released.or_fail("Unlock")?;
    served.into_iter().collect()
}
