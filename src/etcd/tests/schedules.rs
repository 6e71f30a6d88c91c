//! Random schedules of group commit and of the lease pool, over a model of etcd's rules.
//!
//! Both are state machines without a clock, a server or a task. So schedules run fast, and
//! a seed always gives the same schedule.
//!
//!     LEASEHOLD_SEEDS=100000 cargo test -p leasehold-etcd --lib schedules -- --nocapture

mod model;

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use leasehold_lock::{self as lock, Mode};
use tokio::time::Instant;

use crate::{
    client::{failure::Refusal, link::Origin},
    commit::batcher::{Batch, Batcher, Item, Limits, Obsolete, Verdict},
    lease::pool::{Lease, Pool},
};
use model::{Etcd, Write};

/// How many seeds are run if `LEASEHOLD_SEEDS` is not set.
const SEEDS: u64 = 500;

/// A resource, and one of its shared grants if that is claimed.
type Claim = (u8, Option<u8>);

/// An operation of a schedule.
#[derive(Clone, Debug)]
struct Op {
    number: u32,
    write: Write,
    claims: Vec<(Claim, Mode)>,
    bytes: usize,
    obsolete: Option<Obsolete>,
}

impl Item for Op {
    type Claim = Claim;
    fn claims(&self) -> &[(Claim, Mode)] {
        &self.claims
    }
    fn extra_ops(&self) -> usize {
        0
    }
    fn enters(&self) -> bool {
        self.claims.is_empty()
    }
    fn size_bytes(&self) -> usize {
        self.bytes
    }
    fn obsolete(&self, _: Instant) -> Option<Obsolete> {
        self.obsolete
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Done(bool),
    Refused(Refusal),
    Unknown,
    Obsolete(Obsolete),
}

#[derive(Default)]
struct Callers {
    answers: BTreeMap<u32, Answer>,
    log: Vec<String>,
}

impl Callers {
    fn answer(&mut self, number: u32, answer: Answer) {
        self.log.push(format!("{number} {answer:?}"));
        let before = self.answers.insert(number, answer);
        assert!(before.is_none(), "{number} was answered twice: {before:?}, {answer:?}");
    }
}

/// Runs a random schedule of the batcher, and returns its log.
fn commit(seed: u64) -> Vec<String> {
    let mut rng = Rng::with_seed(seed);
    let limits = Limits {
        items_max: rng.usize(1..20),
        bytes_max: 1_000,
        waiting_max: rng.usize(20..100),
    };
    let mut etcd = Etcd::new(rng.usize(1..20));
    let mut batcher = Batcher::<Op>::new(limits);
    let mut callers = Callers::default();
    let mut flying: Option<Batch<Op>> = None;
    let (mut pushed, ops) = (0, rng.u32(1..80));
    let mut steps = 0;
    while pushed < ops || callers.answers.len() < pushed as usize {
        steps += 1;
        assert!(steps < 100_000, "the schedule does not end: {:?}", callers.log);
        match rng.u8(..4) {
            0 if pushed < ops => {
                for _ in 0..rng.u32(1..8).min(ops - pushed) {
                    pushed += 1;
                    let op = draw(&mut rng, &mut etcd, pushed);
                    if let Err(op) = batcher.push(op) {
                        callers.answer(op.number, Answer::Obsolete(Obsolete::Late));
                    }
                }
            }
            1 => etcd.kill_a_lease(&mut rng),
            2 if flying.is_none() => {
                let (batch, obsolete) = batcher.next(Instant::now());
                for (op, why) in obsolete {
                    callers.answer(op.number, Answer::Obsolete(why));
                }
                flying = batch;
            }
            _ => {
                if let Some(batch) = flying.take() {
                    land(&mut rng, &mut etcd, &mut batcher, batch, &mut callers);
                }
            }
        }
    }
    assert_eq!(callers.answers.len(), ops as usize);
    for (number, times) in &etcd.applied {
        assert_eq!(*times, 1, "{number} was applied {times} times");
    }
    for (number, answer) in &callers.answers {
        let applied = etcd.applied.contains_key(number);
        match answer {
            Answer::Done(_) => assert!(applied, "{number} was answered Done, but not applied"),
            Answer::Unknown => {}
            _ => assert!(!applied, "{number} was applied, but answered {answer:?}"),
        }
    }
    callers.log
}

fn draw(rng: &mut Rng, etcd: &mut Etcd, number: u32) -> Op {
    let resource = rng.u8(..4);
    let lease = etcd.some_lease(rng);
    let reader = rng.u8(..4);
    let exclusive = vec![((resource, None), Mode::Exclusive)];
    let shared =
        vec![((resource, None), Mode::Shared), ((resource, Some(reader)), Mode::Exclusive)];
    let (write, claims) = match rng.u8(..8) {
        // Each queue entry has its own key, so it needs no claim.
        0 => (Write::Enter { entry: number, lease }, Vec::new()),
        1..4 => (Write::Acquire { resource, lease }, exclusive),
        4 => (Write::Release { resource }, exclusive),
        5..7 => (Write::Share { resource, reader, lease }, shared),
        _ => (Write::Leave { resource, reader }, shared),
    };
    let obsolete = match rng.u8(..30) {
        0 => Some(Obsolete::Abandoned),
        1 => Some(Obsolete::Late),
        2 => Some(Obsolete::Stale),
        _ => None,
    };
    Op { number, write, claims, bytes: rng.usize(1..400), obsolete }
}

/// Ends a batch in a random way, and reports the result to the batcher and the callers.
fn land(
    rng: &mut Rng,
    etcd: &mut Etcd,
    batcher: &mut Batcher<Op>,
    batch: Batch<Op>,
    callers: &mut Callers,
) {
    let writes: Vec<(u32, Write)> =
        batch.items.iter().map(|op| (op.number, op.write)).collect();
    let (verdict, answers) = match rng.u8(..6) {
        0 => (Verdict::NotSent, Vec::new()),
        1 => {
            if rng.bool() {
                let _ = etcd.transact(&writes);
            }
            (Verdict::Answered, vec![Answer::Unknown; writes.len()])
        }
        _ => match etcd.transact(&writes) {
            Ok(taken) => (Verdict::Answered, taken.into_iter().map(Answer::Done).collect()),
            Err(refusal) => {
                assert_ne!(refusal, Refusal::Other, "a batch writes a key twice: {writes:?}");
                (Verdict::Refused(refusal), vec![Answer::Refused(refusal)])
            }
        },
    };
    let answered = batcher.done(batch, verdict);
    for (op, answer) in answered.iter().zip(&answers) {
        if *answer == Answer::Refused(Refusal::LeaseNotFound) {
            assert!(!etcd.lives(op.write), "the lease of {} is alive", op.number);
        }
        callers.answer(op.number, *answer);
    }
}

/// Runs a random schedule of the lease pool, and returns its log. Leases are taken, used
/// and given back. Their keep-alives arrive late or never.
fn lend(seed: u64, begun: lock::Instant) -> Vec<String> {
    let mut rng = Rng::with_seed(seed);
    let kept_max = rng.usize(1..8);
    let mut pool = Pool::new(kept_max);
    let (mut now, mut next, mut log) = (begun, 0_i64, Vec::new());
    // When etcd ends each lease.
    let mut ends: BTreeMap<i64, lock::Instant> = BTreeMap::new();
    // The leases in use.
    let mut out: Vec<Lease> = Vec::new();
    // Keep-alives in flight: when each arrives, its lease, and when it was sent.
    let mut asked: Vec<(lock::Instant, i64, lock::Instant)> = Vec::new();
    for _ in 0..rng.u32(20..200) {
        let step_ms_max = [2, 300, 3_000][rng.usize(..3)];
        now += Duration::from_millis(rng.u64(0..step_ms_max));
        asked.retain(|(arrives, id, sent)| {
            if *arrives > now {
                return true;
            }
            match ends.get_mut(id) {
                Some(end) if *end > *arrives => {
                    *end = *arrives + Duration::from_secs(3);
                    pool.refreshed(*id, *sent);
                }
                _ => pool.died(*id),
            }
            false
        });
        match rng.u8(..4) {
            0 => {
                let lease = pool.take(3).unwrap_or_else(|| {
                    next += 1;
                    ends.insert(next, now + Duration::from_secs(3));
                    Lease {
                        id: next,
                        asked_s: 3,
                        ttl_s: 3,
                        refreshed: now,
                        origin: Origin::default(),
                    }
                });
                assert!(
                    out.iter().all(|held| held.id != lease.id),
                    "lease {} was taken twice",
                    lease.id
                );
                if lease.is_fresh(now) {
                    // etcd may apply the write at any time until the lease is no longer fresh.
                    let ends = ends[&lease.id];
                    let latest = lease.fresh_until();
                    assert!(ends >= latest + lease.grant_ttl(), "{lease:?} ends too early");
                    out.push(lease);
                    log.push(format!("take {}", lease.id));
                }
            }
            1 if !out.is_empty() => {
                let lease = out.swap_remove(rng.usize(..out.len()));
                let kept = pool.give(lease, now).is_ok();
                log.push(format!("give {} {kept}", lease.id));
            }
            2 => {
                let chores = pool.chores(now, Origin::default());
                for id in &chores.revoke {
                    assert!(out.iter().all(|held| held.id != *id), "{id} is revoked in use");
                    ends.remove(id);
                }
                let mut refresh = chores.refresh;
                refresh.sort_unstable();
                for id in refresh {
                    assert!(out.iter().all(|held| held.id != id), "{id} is refreshed in use");
                    if rng.u8(..4) > 0 {
                        asked.push((now + Duration::from_millis(rng.u64(..900)), id, now));
                    }
                    log.push(format!("refresh {id}"));
                }
            }
            _ => {}
        }
    }
    let mut left = pool.drain();
    left.extend(out.iter().map(|lease| lease.id));
    let count = left.len();
    left.sort_unstable();
    left.dedup();
    assert_eq!(left.len(), count, "a lease is in the pool and in use, or twice in one of them");
    assert!(count <= kept_max + out.len());
    log
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| Some(std::env::var(name).ok()?.parse().unwrap());
    let first = number("LEASEHOLD_FIRST_SEED").unwrap_or(0);
    first..first + number("LEASEHOLD_SEEDS").unwrap_or(SEEDS)
}

/// Runs all seeds, and every tenth twice to check that a seed repeats its schedule. Names
/// the seed that fails.
#[allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "prints how many seeds were run"
)]
fn run(of: &str, schedule: impl Fn(u64) -> Vec<String>) {
    let (begun, seeds) = (std::time::Instant::now(), seeds());
    let (count, mut steps) = (seeds.end - seeds.start, 0);
    for seed in seeds {
        let named = Named(of, seed);
        let log = schedule(seed);
        steps += log.len();
        if seed % 10 == 0 {
            assert!(log == schedule(seed), "seed {seed} did not repeat its schedule");
        }
        std::mem::forget(named);
    }
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    println!(
        "{of}: {count} seeds, {steps} steps; {:.0} seeds a minute",
        count as f64 / minutes
    );
}

struct Named<'a>(&'a str, u64);

impl Drop for Named<'_> {
    #[allow(clippy::print_stderr, reason = "names the failing seed")]
    fn drop(&mut self) {
        eprintln!(
            "{} failed: repeat it with LEASEHOLD_FIRST_SEED={} LEASEHOLD_SEEDS=1 \
             cargo test -p leasehold-etcd --lib schedules",
            self.0, self.1
        );
    }
}

#[test]
fn every_write_is_applied_at_most_once_and_answered_once() {
    run("group commit", commit);
}

#[test]
fn no_lease_is_taken_twice_or_with_too_little_time_left() {
    let begun = lock::Instant::now();
    run("leases", |seed| lend(seed, begun));
}
