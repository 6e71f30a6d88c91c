//! A free resource is granted to one of several tries, whatever other tries are in flight.
//!
//! Some stores put each try into a queue, and remove it if it is not the first. Such a store
//! sometimes refuses a free resource: a try from before the Unlock is still in the queue when
//! the tries after the Unlock arrive, and they are refused because of it. This depends on
//! timing, so there are many rounds.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures_util::future::{join_all, try_join_all};
use tokio::{sync::Notify, time::Instant};

use crate::{
    case::Cases,
    expect::Expect as _,
    grant::{Ask, Grant},
    reason::Reason,
    store::Store,
    world::{World, hold},
};

/// For how long rounds are run. If one round in a thousand fails, this is enough to see several
/// failures on most stores.
const ROUNDS_LAST: Duration = Duration::from_secs(6);
/// How many resources are used at the same time.
const RESOURCES: usize = 2;
/// How many callers of a resource try again and again until the Unlock is answered.
const LOOPING: usize = 3;
/// How many callers of a resource try once after the answer to the Unlock, in alternating
/// rounds. A single one competes only with earlier tries; several also compete with each
/// other.
const LATE: [usize; 2] = [1, 3];
const LATE_MAX: usize = 3;

pub(crate) fn tests(cases: &mut Cases) {
    // Trap: all 2
    cases.core(
        "after an Unlock, one of those who try is granted though other tries are in flight",
        |world| async move {
            let until = Instant::now() + ROUNDS_LAST;
            try_join_all((0..RESOURCES).map(|_| rounds(&world, until))).await.map(drop)
        },
    );
    cases.alone();
}

async fn rounds(world: &World, until: Instant) -> anyhow::Result<()> {
    let ask = Ask::of(&world.resource());
    let callers: Vec<_> = (0..LOOPING + LATE_MAX).map(|_| world.fresh()).collect();
    let mut holder = hold(&callers[0], &ask).await?;
    for number in 0_usize.. {
        if Instant::now() >= until {
            break;
        }
        let late = LATE[number % LATE.len()];
        holder = round(&callers[..LOOPING + late], &ask, &holder)
            .await
            .with_context(|| format!("round {number} on {}", ask.request.resource_id))?;
    }
    Ok(())
}

/// A try, and the moments between which it took effect.
#[derive(Debug)]
struct Try {
    caller: usize,
    began_at: Instant,
    ended_at: Instant,
    /// Its grant; `None` if it was refused.
    grant: Option<Grant>,
}

/// Unlocks while others try, and returns the one new grant.
async fn round(callers: &[Store], ask: &Ask, holder: &Grant) -> anyhow::Result<Grant> {
    let unlocked = Unlocked { answered: AtomicBool::new(false), bell: Notify::new() };
    let tries = callers.iter().enumerate().map(|(number, store)| {
        let unlocked = &unlocked;
        async move {
            if number < LOOPING {
                looping(store, ask, unlocked, number).await
            } else {
                unlocked.answered().await;
                one_try(store, ask, number).await.map(Some)
            }
        }
    });
    let unlock = async {
        // Let the looping callers start a try.
        tokio::task::yield_now().await;
        let began_at = Instant::now();
        let answer = callers[0].release(holder).await;
        let ended_at = Instant::now();
        unlocked.ring();
        answer.or_fail("Unlock by the holder").map(|()| (began_at, ended_at))
    };
    let (tries, unlock) = tokio::join!(join_all(tries), unlock);
    let unlock = unlock?;
    let tries = tries.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    judge(tries.into_iter().flatten().collect(), unlock)
}

/// Tries again and again until the Unlock is answered. No try begins after the answer, because
/// it would follow the caller's own previous try, and be granted where the tries of the others
/// are refused.
async fn looping(
    store: &Store,
    ask: &Ask,
    unlocked: &Unlocked,
    number: usize,
) -> anyhow::Result<Option<Try>> {
    let mut last = None;
    while !unlocked.is_answered() {
        let made = one_try(store, ask, number).await?;
        let is_granted = made.grant.is_some();
        last = Some(made);
        if is_granted {
            break;
        }
    }
    Ok(last)
}

async fn one_try(store: &Store, ask: &Ask, caller: usize) -> anyhow::Result<Try> {
    let began_at = Instant::now();
    let tried = store.try_lock(ask).await;
    let ended_at = Instant::now();
    let grant = match tried {
        Ok(grant) => Some(grant),
        refused => {
            refused.refused(Reason::ResourceLocked)?;
            None
        }
    };
    Ok(Try { caller, began_at, ended_at, grant })
}

/// Whether the round's Unlock was answered.
struct Unlocked {
    answered: AtomicBool,
    bell: Notify,
}

impl Unlocked {
    fn ring(&self) {
        self.answered.store(true, Ordering::Release);
        self.bell.notify_waiters();
    }

    fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    async fn answered(&self) {
        let bell = self.bell.notified();
        if !self.is_answered() {
            bell.await;
        }
    }
}

/// Checks that exactly one try of the round was granted, since no grant of the round is
/// unlocked. Tries that began before the Unlock was answered may be refused. But if all of them
/// were, the resource was free, and one of the later tries had to be granted.
fn judge(mut tries: Vec<Try>, unlock: (Instant, Instant)) -> anyhow::Result<Grant> {
    tries.sort_by_key(|made| made.began_at);
    let granted = tries.iter().filter(|made| made.grant.is_some()).count();
    if granted == 1
        && let Some(grant) = tries.iter_mut().find_map(|made| made.grant.take())
    {
        return Ok(grant);
    }
    let line = timeline(&tries, unlock);
    let late = tries.iter().filter(|made| made.began_at >= unlock.1).count();
    if granted == 0 {
        bail!(
            "the Unlock was answered and nobody held the resource, yet all of the {late} tries \
             that began after the answer were refused. A try must not be refused because of \
             another try that is refused itself: decide a try in one atomic step.\n{line}"
        );
    }
    bail!("{granted} tries were granted the resource, and none of them was unlocked\n{line}")
}

/// The calls of the round, one in each line, with times since the Unlock was sent.
fn timeline(tries: &[Try], (unlock_began_at, unlock_ended_at): (Instant, Instant)) -> String {
    let since = |moment: Instant| {
        let after = moment.saturating_duration_since(unlock_began_at).as_secs_f64();
        let before = unlock_began_at.saturating_duration_since(moment).as_secs_f64();
        format!("{:>8.3} ms", (after - before) * 1000.0)
    };
    let mut lines = Vec::from([(
        unlock_began_at,
        format!("{} to {}  Unlock  OK", since(unlock_began_at), since(unlock_ended_at)),
    )]);
    for made in tries {
        let outcome = match &made.grant {
            Some(grant) => format!("granted, lock ID {}", grant.lock_id),
            None => "refused with RESOURCE_LOCKED".to_owned(),
        };
        let (from, to) = (since(made.began_at), since(made.ended_at));
        let line = format!("{from} to {to}  TryLock by caller {}  {outcome}", made.caller);
        lines.push((made.began_at, line));
    }
    lines.sort_by_key(|(began_at, _)| *began_at);
    let mut text = "Timeline, from the request of the Unlock on:".to_owned();
    for (_, line) in lines {
        // Writing to a String does not fail.
        let _ = write!(text, "\n  {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{ms, secs};

    /// The Unlock takes from 10 ms to 20 ms; a try is its moments and whether
    /// it was granted.
    fn judged(tries: &[(u64, u64, bool)]) -> anyhow::Result<Grant> {
        let start = Instant::now();
        let made = |&(began, ended, granted): &(u64, u64, bool)| Try {
            caller: 0,
            began_at: start + ms(began),
            ended_at: start + ms(ended),
            grant: granted.then(|| Grant {
                grant_id: String::new(),
                resource: String::new(),
                lock_id: began.to_string(),
                token: 1,
                ttl: secs(60),
                waited: ms(0),
                asked_at: start + ms(began),
                answered_at: start + ms(ended),
            }),
        };
        judge(tries.iter().map(made).collect(), (start + ms(10), start + ms(20)))
    }

    #[test]
    fn one_grant_is_accepted_whenever_its_try_began() {
        assert_eq!(judged(&[(5, 12, false), (21, 25, true)]).unwrap().lock_id, "21");
        assert_eq!(judged(&[(5, 18, true), (21, 25, false)]).unwrap().lock_id, "5");
    }

    #[test]
    fn a_free_resource_that_all_tries_are_refused_is_found() {
        let error = judged(&[(5, 30, false), (21, 25, false)]).unwrap_err().to_string();
        assert!(error.contains("all of the 1 tries"), "{error}");
        assert!(error.contains("  -5.000 ms to   20.000 ms  TryLock"), "{error}");
    }

    #[test]
    fn two_grants_in_one_round_are_found() {
        let error = judged(&[(5, 18, true), (21, 25, true)]).unwrap_err().to_string();
        assert!(error.starts_with("2 tries were granted"), "{error}");
    }
}
