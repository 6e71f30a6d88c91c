//! Resources with similar names.

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, stream};

use crate::{
    case::Cases,
    expect::Expect as _,
    grant::Ask,
    world::{World, must_be_held},
};

/// Suffixes that make longer names. A store that keeps a lock under the path of its name, and
/// finds holders by that path as a prefix, confuses some of these with the name itself.
const ENDINGS: [&str; 8] = ["/", "//", "/a", "//a", "/a/b", "-", ".", "a"];

/// Prefixes and suffixes of a name `x`. The results differ only in their slashes, or a path
/// library treats them as equal.
const SLASHES: [(&str, &str); 7] =
    [("", ""), ("", "/"), ("/", ""), ("", "/a"), ("", "//a"), ("", "/./a"), ("", "/a/")];

/// How many pairs of names are tried at the same time. Few, because other cases run at the
/// same time and measure their answers.
const PAIRS_AT_ONCE: usize = 2;

pub(crate) fn tests(cases: &mut Cases) {
    // Trap: all 29
    cases.core("holding a name leaves longer names that begin with it free", |world| {
        let pair = |x: String, ending: &str| (x.clone(), format!("{x}{ending}"));
        let pairs = ENDINGS.map(|ending| pair(world.resource(), ending));
        all_free(world, pairs.to_vec())
    });
    // Trap: all 29
    cases.core("holding a name leaves shorter names that it begins with free", |world| {
        let pair = |x: String, ending: &str| (format!("{x}{ending}"), x);
        let pairs = ENDINGS.map(|ending| pair(world.resource(), ending));
        all_free(world, pairs.to_vec())
    });
    // Trap: all 29
    cases.core("names that differ in their slashes are different resources", |world| {
        let mut pairs = Vec::new();
        for held in SLASHES {
            for other in SLASHES.into_iter().filter(|other| *other != held) {
                let x = world.resource();
                let name = |(before, after): (&str, &str)| format!("{before}{x}{after}");
                pairs.push((name(held), name(other)));
            }
        }
        all_free(world, pairs)
    });
}

/// Fails if the second name of a pair is not free while the first is held. Tries all pairs,
/// because the list of failing pairs shows how the store changes names.
async fn all_free(world: World, pairs: Vec<(String, String)>) -> anyhow::Result<()> {
    let count = pairs.len();
    let outcomes = stream::iter(pairs)
        .map(|(held, other)| {
            let world = world.clone();
            async move { independent(&world, &held, &other).await }
        })
        .buffered(PAIRS_AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let failed: Vec<_> = outcomes
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
    ensure!(
        failed.is_empty(),
        "{} of {count} pairs of names are not independent:\n  {}",
        failed.len(),
        failed.join("\n  ")
    );
    Ok(())
}

/// Locks one name and then the other, and unlocks the other, after which the first must still
/// be held.
async fn independent(world: &World, held: &str, other: &str) -> anyhow::Result<()> {
    let store = world.store();
    let first = store
        .try_lock(&Ask::of(held))
        .await
        .or_fail(&format!("a TryLock of `{held}`, which is free, was refused"))?;
    let second = store.try_lock(&Ask::of(other)).await.or_fail(&format!(
        "while `{held}` is held, a TryLock of `{other}`, which is free, was refused"
    ))?;
    store.release(&second).await.or_fail(&format!("Unlock of `{other}`"))?;
    must_be_held(
        &store,
        held,
        &format!("after an Unlock of `{other}`, `{held}` is still held"),
    )
    .await?;
    store
        .release(&first)
        .await
        .or_fail(&format!("Unlock of `{held}`"))
        .with_context(|| format!("after an Unlock of `{other}`"))
}
