//! One holder at a time, under load.

use std::time::Duration;

use anyhow::ensure;
use futures_util::future::{join_all, try_join_all};
use tokio::time::Instant;

use crate::{
    case::{Cases, Demand},
    expect::Expect as _,
    feature::Feature,
    grant::{Ask, Grant},
    reason::Reason,
    store::Store,
    words::Readable,
    world::{World, secs},
};

const CALLERS: usize = 8;
const ROUNDS: usize = 25;
/// For how long grants are left to expire.
const EXPIRIES_LAST: Duration = Duration::from_secs(4);

pub(crate) fn tests(cases: &mut Cases) {
    cases.core("callers that wait never hold a resource together", |world| async move {
        let resource = world.resource();
        let stores: Vec<_> = (0..CALLERS).map(|_| world.fresh()).collect();
        never_together(&run(&stores, &resource, locks).await?)
    });
    cases.alone();
    cases.core("callers that try never hold a resource together", |world| async move {
        let resource = world.resource();
        let stores: Vec<_> = (0..CALLERS).map(|_| world.fresh()).collect();
        never_together(&run(&stores, &resource, tries).await?)
    });
    cases.alone();
    cases.core("callers whose grants expire never hold a resource together", expiries);
    cases.alone();
    cases.add(
        Demand::Features(&[Feature::Fencing]),
        "tokens rise in the order in which callers that try held the resource",
        |world| async move {
            let resource = world.resource();
            let stores: Vec<_> = (0..CALLERS).map(|_| world.fresh()).collect();
            tokens_follow(&run(&stores, &resource, tries).await?)
        },
    );
    cases.alone();
    cases.add(
        Demand::Features(&[Feature::Fencing]),
        "tokens rise in the order in which callers held the resource",
        |world| async move {
            let resource = world.resource();
            let stores: Vec<_> = (0..CALLERS).map(|_| world.fresh()).collect();
            tokens_follow(&run(&stores, &resource, locks).await?)
        },
    );
    cases.alone();
}

/// A grant and the moment at which its Unlock was sent. In between, it was certainly live.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) grant: Grant,
    pub(crate) released_at: Instant,
}

/// Lets the callers, one for each store, acquire and release the resource at the same time.
pub(crate) async fn run<F, Fut>(
    stores: &[Store],
    resource: &str,
    acquire: F,
) -> anyhow::Result<Vec<Held>>
where
    F: Fn(Store, Ask) -> Fut,
    Fut: Future<Output = anyhow::Result<Grant>>,
{
    let callers = stores.iter().map(|store| async {
        let mut held = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let grant = acquire(store.clone(), Ask::of(resource)).await?;
            tokio::task::yield_now().await;
            let released_at = Instant::now();
            store.release(&grant).await.or_fail("Unlock by the holder")?;
            held.push(Held { grant, released_at });
        }
        anyhow::Ok(held)
    });
    let held: Result<Vec<_>, _> = join_all(callers).await.into_iter().collect();
    let mut held = held?.into_iter().flatten().collect::<Vec<_>>();
    held.sort_by_key(|held| held.grant.answered_at);
    Ok(held)
}

/// Half of the callers wait, half try, and all leave their grants to expire.
async fn expiries(world: World) -> anyhow::Result<()> {
    let resource = world.resource();
    let ask = Ask::of(&resource).ttl(Duration::from_millis(100));
    let until = Instant::now() + EXPIRIES_LAST;
    let callers = (0..CALLERS).map(|number| {
        let (store, ask) = (world.fresh(), ask.clone());
        async move {
            let mut held = Vec::new();
            while Instant::now() < until {
                let answer = if number % 2 == 0 {
                    store.lock(&ask.clone().within(secs(60))).await
                } else {
                    store.try_lock(&ask).await
                };
                let grant = match answer {
                    Ok(grant) => grant,
                    // On a busy machine an answer can come after the grant has expired.
                    Err(rejection) if rejection.is_outcome_unknown() => continue,
                    refused if number % 2 == 1 => {
                        drop(refused.refused(Reason::ResourceLocked)?);
                        continue;
                    }
                    failed => failed.or_fail("Lock")?,
                };
                // Unless its answer came late, it is certainly live until then.
                let released_at = grant.lives_until();
                if grant.answered_at < released_at {
                    held.push(Held { grant, released_at });
                }
            }
            anyhow::Ok(held)
        }
    });
    let mut held = try_join_all(callers).await?.concat();
    held.sort_by_key(|held| held.grant.answered_at);
    never_together(&held)
}

/// Acquires by waiting.
pub(crate) async fn locks(store: Store, ask: Ask) -> anyhow::Result<Grant> {
    store.lock(&ask.within(secs(60))).await.or_fail("Lock")
}

/// Acquires by trying again and again.
async fn tries(store: Store, ask: Ask) -> anyhow::Result<Grant> {
    loop {
        match store.try_lock(&ask).await {
            Ok(grant) => return Ok(grant),
            refused => drop(refused.refused(Reason::ResourceLocked)?),
        }
    }
}

/// Fails if two grants were certainly live at the same time.
pub(crate) fn never_together(held: &[Held]) -> anyhow::Result<()> {
    for pair in held.windows(2) {
        let overlap = pair[0].released_at.saturating_duration_since(pair[1].grant.answered_at);
        ensure!(
            overlap.is_zero(),
            "the lock ID {} was granted {} before an Unlock of {} was sent",
            pair[1].grant.lock_id,
            Readable(overlap),
            pair[0].grant.lock_id
        );
    }
    Ok(())
}

/// Fails if a later grant does not have a greater token.
pub(crate) fn tokens_follow(held: &[Held]) -> anyhow::Result<()> {
    for pair in held.windows(2) {
        let (earlier, later) = (pair[0].grant.token, pair[1].grant.token);
        ensure!(later > earlier, "the token {later} came after {earlier}");
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::world::ms;

    /// A grant that was answered and released these times after `start`.
    pub(crate) fn held(start: Instant, answered_ms: u64, released_ms: u64, token: i64) -> Held {
        let grant = Grant {
            grant_id: String::new(),
            resource: String::new(),
            lock_id: token.to_string(),
            token,
            ttl: secs(60),
            waited: ms(0),
            asked_at: start,
            answered_at: start + ms(answered_ms),
        };
        Held { grant, released_at: start + ms(released_ms) }
    }

    #[test]
    fn an_overlap_is_found() {
        let start = Instant::now();
        assert!(never_together(&[held(start, 0, 5, 1), held(start, 5, 9, 2)]).is_ok());
        assert!(never_together(&[held(start, 0, 6, 1), held(start, 5, 9, 2)]).is_err());
    }

    #[test]
    fn a_repeated_token_is_found() {
        let start = Instant::now();
        assert!(tokens_follow(&[held(start, 0, 5, 1), held(start, 5, 9, 2)]).is_ok());
        assert!(tokens_follow(&[held(start, 0, 5, 2), held(start, 5, 9, 2)]).is_err());
    }
}
