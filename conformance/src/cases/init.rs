//! Init, and calls before it.

use std::collections::HashMap;

use anyhow::ensure;

use crate::{
    case::Cases,
    expect::Expect as _,
    grant::Ask,
    reason::Reason,
    words::Readable,
    world::{World, hold, secs},
};

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("Init makes an instance that grants", grants);
    cases.core("Init repeated with equal metadata is accepted", repeated);
    cases.core("Init repeated with equal metadata leaves grants alive", keeps_grants);
    cases.core("Init repeated with equal metadata leaves waits in the queue", keeps_waits);
    cases.core("Init with another default TTL replaces the old one", replaces);
    cases.core("a bad property is INVALID_METADATA and is named", bad_property);
    cases.core("Init names all bad properties at once", all_bad_properties);
    cases.core("a refused Init leaves the instance as it was", refused_changes_nothing);
    cases.core("a refused first Init makes no instance", refused_makes_nothing);
    cases.core("a call that names no instance reaches the unnamed one", unnamed);
    cases.core("an instance's name reaches only that instance", only_that_one);
    cases.core("TryLock before Init is NOT_INITIALIZED", |world| async move {
        let store = world.new_instance()?;
        let ask = Ask::of(&world.resource());
        store.try_lock(&ask).await.refused(Reason::NotInitialized).map(drop)
    });
    cases.core("Lock before Init is NOT_INITIALIZED", |world| async move {
        let store = world.new_instance()?;
        let ask = Ask::of(&world.resource()).within(secs(2));
        store.lock(&ask).await.refused(Reason::NotInitialized).map(drop)
    });
    cases.core("RenewLock before Init is NOT_INITIALIZED", |world| async move {
        let renewal = world.new_instance()?.renew(&world.resource(), "x", secs(2)).await;
        renewal.refused(Reason::NotInitialized).map(drop)
    });
    cases.core("Unlock before Init is NOT_INITIALIZED", |world| async move {
        let unlocked = world.new_instance()?.unlock(&world.resource(), "x").await;
        unlocked.refused(Reason::NotInitialized).map(drop)
    });
    cases.core("Ping answers before Init", |world| async move {
        world.new_instance()?.ping().await.or_fail("Ping before Init")
    });
    cases.core("Features answers before Init", |world| async move {
        world.new_instance()?.features().await.or_fail("Features before Init").map(drop)
    });
}

/// The properties of the component YAML, some of them replaced.
fn with(world: &World, changes: &[(&str, &str)]) -> HashMap<String, String> {
    let mut properties = world.properties();
    for (name, value) in changes {
        properties.retain(|known, _| !known.eq_ignore_ascii_case(name));
        properties.insert((*name).to_owned(), (*value).to_owned());
    }
    properties
}

async fn grants(world: World) -> anyhow::Result<()> {
    let store = world.new_instance()?;
    store.init(world.properties()).await.or_fail("Init")?;
    hold(&store, &Ask::of(&world.resource())).await.map(drop)
}

async fn repeated(world: World) -> anyhow::Result<()> {
    let store = world.new_instance()?;
    store.init(world.properties()).await.or_fail("the first Init")?;
    store.init(world.properties()).await.or_fail("the second Init")
}

async fn keeps_grants(world: World) -> anyhow::Result<()> {
    let store = world.new_instance()?;
    store.init(world.properties()).await.or_fail("the first Init")?;
    let grant = hold(&store, &Ask::of(&world.resource())).await?;
    store.init(world.properties()).await.or_fail("the second Init")?;
    store.release(&grant).await.or_fail("unlocking a grant from before the second Init")
}

async fn keeps_waits(world: World) -> anyhow::Result<()> {
    let (store, ask) = (world.new_instance()?, Ask::of(&world.resource()));
    store.init(world.properties()).await.or_fail("the first Init")?;
    let grant = hold(&store, &ask).await?;
    let waiter = store.queue(&ask.within(secs(60))).await?;
    store.init(world.properties()).await.or_fail("the second Init")?;
    store.release(&grant).await.or_fail("Unlock")?;
    waiter.granted().await.map(drop)
}

async fn replaces(world: World) -> anyhow::Result<()> {
    let store = world.new_instance()?;
    store.init(with(&world, &[("ttl", "7s")])).await.or_fail("Init with ttl 7s")?;
    store.init(with(&world, &[("ttl", "1m10s")])).await.or_fail("Init with ttl 1m10s")?;
    let mut ask = Ask::of(&world.resource());
    ask.request.ttl = None;
    let granted = hold(&store, &ask).await?.ttl;
    ensure!(
        granted >= secs(70),
        "the default TTL should be 70 s now, granted {}",
        Readable(granted)
    );
    Ok(())
}

async fn bad_property(world: World) -> anyhow::Result<()> {
    let store = world.new_instance()?;
    let init = store.init(with(&world, &[("ttl", "soon")])).await;
    init.refused(Reason::InvalidMetadata)?.names(&["ttl"])
}

async fn all_bad_properties(world: World) -> anyhow::Result<()> {
    let store = world.new_instance()?;
    let init = store.init(with(&world, &[("ttl", "soon"), ("maxTTL", "never")])).await;
    init.refused(Reason::InvalidMetadata)?.names(&["ttl", "maxTTL"])
}

async fn refused_changes_nothing(world: World) -> anyhow::Result<()> {
    let store = world.new_instance()?;
    store.init(with(&world, &[("ttl", "7s")])).await.or_fail("the first Init")?;
    let mut ask = Ask::of(&world.resource());
    ask.request.ttl = None;
    let grant = hold(&store, &ask).await?;
    // One property is good, so a store that takes them over one by one is noticed.
    for changes in
        [[("ttl", "1m10s"), ("maxTTL", "never")], [("ttl", "soon"), ("maxTTL", "2s")]]
    {
        store.init(with(&world, &changes)).await.refused(Reason::InvalidMetadata)?;
    }
    ask.request.resource_id = world.resource();
    let granted = hold(&store, &ask).await?.ttl;
    ensure!(
        granted < secs(70),
        "the default TTL should still be 7 s, granted {}",
        Readable(granted)
    );
    store.release(&grant).await.or_fail("unlocking a grant from before the refused Init")
}

async fn refused_makes_nothing(world: World) -> anyhow::Result<()> {
    let store = world.new_instance()?;
    let init = store.init(with(&world, &[("ttl", "soon")])).await;
    init.refused(Reason::InvalidMetadata)?;
    let tried = store.try_lock(&Ask::of(&world.resource())).await;
    tried.refused(Reason::NotInitialized).map(drop)
}

async fn unnamed(world: World) -> anyhow::Result<()> {
    let store = world.unnamed_instance();
    store.init(world.properties()).await.or_fail("Init")?;
    let grant = hold(&store, &Ask::of(&world.resource())).await?;
    store.release(&grant).await.or_fail("Unlock")
}

async fn only_that_one(world: World) -> anyhow::Result<()> {
    let (made, not_made) = (world.new_instance()?, world.new_instance()?);
    made.init(world.properties()).await.or_fail("Init")?;
    let tried = not_made.try_lock(&Ask::of(&world.resource())).await;
    tried.refused(Reason::NotInitialized).map(drop)
}
