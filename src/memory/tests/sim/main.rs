//! Simulation of the domain and the memory store: simulated time, many
//! processes and clients, network faults; thousands of schedules a minute, each
//! reproducible from its seed.
//!
//!     cargo test -p leasehold-memory --test sim                    # a bounded share
//!     LEASEHOLD_SEEDS=100000 cargo test -p leasehold-memory --test sim -- --nocapture
//!     LEASEHOLD_SEED=42 cargo test -p leasehold-memory --test sim one_seed -- --ignored --nocapture
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test"
)]

mod check;
mod client;
mod history;
mod link;
mod link_faults;
mod server;
mod store;
mod world;

use std::time::Instant;

use history::{What, log};

/// How many seeds are run by default.
const SEEDS: u64 = 300;

fn number(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}, not a number")))
}

#[test]
fn every_schedule_keeps_every_promise() {
    let seeds = number("LEASEHOLD_SEEDS").unwrap_or(SEEDS);
    let first = number("LEASEHOLD_FIRST_SEED").unwrap_or(0);
    let (begun, mut calls, mut events) = (Instant::now(), 0, 0);
    for seed in first..first + seeds {
        let run = world::run(seed);
        events += run.events.len();
        calls += run.events.iter().filter(|e| matches!(e.what, What::Called { .. })).count();
        assert!(
            run.violations.is_empty(),
            "seed {seed} ({:?}), after {} seeds and {calls} calls: {:#?}\nrepeat it with \
             LEASEHOLD_SEED={seed} cargo test -p leasehold-memory --test sim one_seed -- --ignored --nocapture",
            run.plan,
            seed - first + 1,
            run.violations,
        );
    }
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    println!(
        "{seeds} seeds, {calls} calls, {events} events, 0 violations; {:.0} seeds a minute",
        seeds as f64 / minutes,
    );
}

#[test]
fn a_seed_repeats_its_schedule_to_the_byte() {
    for seed in 0..40 {
        let (first, second) = (world::run(seed), world::run(seed));
        let (first, second) = (log(&first.events), log(&second.events));
        let differs = first.lines().zip(second.lines()).find(|(a, b)| a != b);
        assert!(first == second, "seed {seed}: {differs:?}");
        assert!(first.lines().count() > 20, "seed {seed} does nothing: {first}");
    }
}

/// Redis and etcd are compared with the model in their own tests.
#[tokio::test(start_paused = true)]
async fn the_memory_store_does_what_the_model_does() {
    for seed in 0..50 {
        let memory = std::sync::Arc::new(world::memory(fastrand::Rng::with_seed(seed)));
        leasehold_testing::Differential::new(vec![memory.clone(), memory], seed).run(200).await;
    }
}

/// Prints the schedule of `LEASEHOLD_SEED` and its violations.
#[test]
#[ignore = "prints one schedule: LEASEHOLD_SEED says which"]
fn one_seed() {
    let seed = number("LEASEHOLD_SEED").expect("LEASEHOLD_SEED");
    let run = world::run(seed);
    println!("{:?}\n{}", run.plan, log(&run.events));
    assert!(run.violations.is_empty(), "{:#?}", run.violations);
}
