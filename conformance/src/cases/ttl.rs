//! How long a grant lasts.

use std::{collections::HashMap, time::Duration};

use anyhow::ensure;
use futures_util::future::try_join_all;
use tokio::time::Instant;

use crate::{
    case::Cases,
    expect::{Expect as _, not_before, not_shorter},
    grant::{Ask, Grant},
    reason::Reason,
    store::Store,
    waiter::Waiter,
    words::Readable,
    world::{EXPIRY_SLACK, World, hold, hold_by, ms, secs},
};

const DEFAULT: Duration = Duration::from_secs(30);
const MIN: Duration = Duration::from_millis(100);

/// How much a store may add by rounding up. The shortest lease of etcd is 2 s, the shortest
/// session of Consul 10 s.
const ROUNDING_MAX: Duration = Duration::from_secs(15);

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("an absent TTL is the default of 30 s", |world| default(world, None));
    cases.core("a TTL of zero is the default", |world| default(world, Some((0, 0))));
    cases.core("a negative TTL is the default", |world| default(world, Some((-5, 0))));
    cases.core("the default is the property `ttl`", property);
    cases.core("the longest TTL is the property `maxTTL`", longest);
    // Trap: all 30
    cases.core("a TTL below 100 ms is raised to it", |world| async move {
        not_shorter(granted(&world.store(), &world.resource(), ms(1)).await?.ttl, MIN)
    });
    for asked in [ms(100), ms(999), ms(1001), ms(1500), secs(2), ms(90_500)] {
        let sentence = format!("a TTL of {asked:?} is granted in full or rounded up");
        cases.core(sentence, move |world| async move {
            let ttl = granted(&world.store(), &world.resource(), asked).await?.ttl;
            not_shorter(ttl, asked)?;
            ensure!(
                ttl <= asked + ROUNDING_MAX,
                "asked for {}, granted {}",
                Readable(asked),
                Readable(ttl)
            );
            Ok(())
        });
    }
    // Trap: all 15
    cases.core("a grant lives at least its granted TTL", |world| async move {
        not_early(&world, ms(800)).await
    });
    // Trap: all 30
    cases.core("the shortest grant lives at least its granted TTL", |world| async move {
        not_early(&world, MIN).await
    });
    cases.core("an expired grant frees its resource", expires);
    // Trap: all 6
    cases.core("an expired grant's waiter is granted the resource", hands_over);
    cases.core("a grant is not cut short by a few milliseconds", exact);
    cases.alone();
    cases.core("refused tries do not lengthen a grant", tries_do_not_renew);
    cases.core("waiters that arrive do not lengthen a grant", waits_do_not_renew);
    cases.core("what is refused or waits does not shorten a grant", not_shortened);
}

async fn granted(store: &Store, resource: &str, ttl: Duration) -> anyhow::Result<Grant> {
    hold(store, &Ask::of(resource).ttl(ttl)).await
}

/// The properties of the component YAML, with this default TTL or none.
fn properties(world: &World, ttl: Option<&str>) -> HashMap<String, String> {
    let mut properties = world.properties();
    properties.retain(|name, _| !name.eq_ignore_ascii_case("ttl"));
    properties.extend(ttl.map(|ttl| ("ttl".to_owned(), ttl.to_owned())));
    properties
}

async fn default(world: World, ttl: Option<(i64, i32)>) -> anyhow::Result<()> {
    let store = world.new_instance()?;
    store.init(properties(&world, None)).await.or_fail("Init without the property `ttl`")?;
    let mut ask = Ask::of(&world.resource());
    ask.request.ttl = ttl.map(|(seconds, nanos)| prost_types::Duration { seconds, nanos });
    let granted = hold(&store, &ask).await?.ttl;
    let expected = DEFAULT..=DEFAULT + ROUNDING_MAX;
    ensure!(expected.contains(&granted), "granted {}, the default is 30 s", Readable(granted));
    Ok(())
}

async fn property(world: World) -> anyhow::Result<()> {
    let store = world.new_instance()?;
    store.init(properties(&world, Some("1m7s"))).await.or_fail("Init with `ttl` of 1m7s")?;
    let mut ask = Ask::of(&world.resource());
    ask.request.ttl = None;
    let granted = hold(&store, &ask).await?.ttl;
    let expected = secs(67)..=secs(67) + ROUNDING_MAX;
    ensure!(expected.contains(&granted), "granted {}, `ttl` is 1m7s", Readable(granted));
    Ok(())
}

async fn longest(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.new_instance()?, world.resource());
    let mut properties = properties(&world, Some("10s"));
    properties.retain(|name, _| !name.eq_ignore_ascii_case("maxTTL"));
    properties.insert("maxTTL".to_owned(), "40s".to_owned());
    store.init(properties).await.or_fail("Init with `maxTTL` of 40s")?;
    let tried = store.try_lock(&Ask::of(&resource).ttl(ms(40_001))).await;
    tried.refused(Reason::InvalidRequest)?;
    granted(&store, &resource, secs(40)).await.map(drop)
}

async fn not_early(world: &World, ttl: Duration) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = granted(&store, &resource, ttl).await?;
    let deadline = grant.lives_until() + EXPIRY_SLACK;
    let next = hold_by(&store, &Ask::of(&resource), deadline, "after the TTL").await?;
    not_before(next.answered_at, grant.lives_until(), "another was granted the resource")
}

async fn expires(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = granted(&store, &resource, ms(300)).await?;
    tokio::time::sleep_until(grant.lives_until()).await;
    let deadline = Instant::now() + EXPIRY_SLACK;
    hold_by(&store, &Ask::of(&resource), deadline, "after the TTL").await.map(drop)
}

async fn hands_over(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = granted(&store, &resource, ms(3500)).await?;
    let waiter = store.queue(&Ask::of(&resource).within(secs(60))).await?;
    tokio::time::sleep_until(grant.lives_until()).await;
    let next = waiter.answer_within(EXPIRY_SLACK).await?.or_fail("the waiter")?;
    not_before(next.answered_at, grant.lives_until(), "the waiter was granted the resource")
}

async fn tries_do_not_renew(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let grant = granted(&store, &resource, ms(500)).await?;
    let deadline = grant.lives_until() + EXPIRY_SLACK;
    // The refused tries of this loop must not count as renewals.
    let ask = Ask::of(&resource).ttl(secs(60)).lock_id(&grant.lock_id);
    hold_by(&store, &ask, deadline, "tried every 10 ms until after the TTL").await.map(drop)
}

/// Waiters learn of an expiry at once. There are many of them because of noise: the
/// earliest answer shows a store that ends grants early.
async fn exact(world: World) -> anyhow::Result<()> {
    let expiries = (0..20).map(|number| {
        let (store, resource) = (world.store(), world.resource());
        async move {
            let grant = granted(&store, &resource, ms(300 + 25 * number)).await?;
            let waiter = store.start(&Ask::of(&resource).within(secs(60)));
            let next = waiter.answer_within(grant.ttl + EXPIRY_SLACK).await?;
            let answered_at = next.or_fail("the waiter")?.answered_at;
            not_before(answered_at, grant.lives_until(), "the waiter was granted the resource")
        }
    });
    try_join_all(expiries).await.map(drop)
}

async fn waits_do_not_renew(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    let ask = Ask::of(&resource).within(secs(60));
    let grant = granted(&store, &resource, secs(3)).await?;
    let mut waiters = vec![store.queue(&ask).await?];
    while !waiters.iter().any(Waiter::is_answered) {
        ensure!(
            Instant::now() < grant.lives_until() + EXPIRY_SLACK,
            "no waiter was granted the resource, of which one came every 100 ms"
        );
        waiters.push(store.start(&ask));
        tokio::time::sleep(ms(100)).await;
    }
    Ok(())
}

async fn not_shortened(world: World) -> anyhow::Result<()> {
    let (store, resource) = (world.store(), world.resource());
    granted(&store, &resource, secs(60)).await?;
    let short = Ask::of(&resource).ttl(MIN);
    store.try_lock(&short).await.refused(Reason::ResourceLocked)?;
    let mut waiter = store.queue(&short.within(secs(60))).await?;
    // Another case checks that this is refused.
    let _ = store.renew(&resource, &World::secret(), MIN).await;
    tokio::time::sleep(MIN).await;
    waiter.stays("the holder's TTL is longer").await
}
