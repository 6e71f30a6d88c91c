//! What the engine reports of held locks.

use std::{sync::Arc, time::Duration};

use leasehold_lock::Store;
use leasehold_memory::Memory;
use leasehold_testing::{
    Recorder,
    scripted::{Fault, Script, Scripted},
};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use super::{Setup, TTL, named};
use crate::{Engine, EngineOptions, Holding, MaxHold};

const SHORT: Duration = Duration::from_millis(1);

fn setup(notices_max: usize) -> (Setup, Arc<Script>, Arc<Recorder>) {
    let (sender, notices) = mpsc::channel(notices_max);
    let (healthy, health) = watch::channel(true);
    let (backend, script, settings) = Scripted::new(Memory::new);
    let recorder = Arc::new(Recorder::default());
    let store = named("s", Store::observed(Arc::new(backend), settings, recorder.clone()));
    let engine = Engine::start(EngineOptions::default(), health, sender);
    let held = Setup { engine, store, script: Arc::clone(&script), notices, healthy };
    (held, script, recorder)
}

/// The lines but those of acquisitions and renewals.
fn ends(recorder: &Recorder) -> Vec<String> {
    let lines = recorder.take_lines().into_iter();
    lines.filter(|line| line.contains(" after ") || line.starts_with("notice")).collect()
}

#[tokio::test(start_paused = true)]
async fn an_unlocked_lock_has_ended_once() {
    let (setup, _, recorder) = setup(1);
    let granted = setup.hold("r").await;
    assert_eq!(recorder.recorded().held, 1);
    sleep(Duration::from_secs(7)).await;
    setup.unlock("r", granted.lock_id).await.unwrap();
    assert_eq!(ends(&recorder), ["unlocked after 7s"]);
    assert_eq!(recorder.recorded().held, 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_stream_releases() {
    let (setup, _, recorder) = setup(1);
    drop(setup.stream("r").await);
    sleep(SHORT).await;
    assert_eq!(ends(&recorder), ["released after 0ns"]);
    assert_eq!(recorder.recorded().held, 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_reported_with_what_was_left_of_the_ttl() {
    let (setup, _, recorder) = setup(1);
    setup.hold("r").await;
    sleep(TTL).await;
    let recorded = recorder.recorded();
    assert!(recorded.remaining.len() >= 2, "{recorded:?}");
    assert!(recorded.remaining.iter().all(|left| (0.5..0.8).contains(left)), "{recorded:?}");
    let renewals = recorded.lines.iter().filter(|line| *line == "renewed: ok");
    assert_eq!(renewals.count(), recorded.remaining.len());
}

/// Heartbeats of the app once hid renewals that came late.
#[tokio::test(start_paused = true)]
async fn a_renewal_by_the_app_says_nothing_of_the_sidecars() {
    let (setup, _, recorder) = setup(1);
    let granted = setup.hold("r").await;
    for _ in 0..10 {
        setup.renew("r", granted.lock_id.clone(), None).await.unwrap();
    }
    assert!(recorder.recorded().remaining.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_a_backend_out_of_reach_is_lost_for_that_reason() {
    let (setup, script, recorder) = setup(1);
    setup.hold("r").await;
    script.on_every_renewal(Some(Fault::Unreachable));
    sleep(TTL).await;
    let ends = ends(&recorder);
    assert!(ends[0].starts_with("unreachable after 28."), "{ends:?}");
    assert_eq!((ends.len(), recorder.recorded().held), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_an_unhealthy_app_is_lost_for_that_reason() {
    let (setup, _, recorder) = setup(1);
    setup.hold("r").await;
    setup.healthy.send(false).unwrap();
    sleep(TTL).await;
    let ends = ends(&recorder);
    assert!(ends[0].starts_with("unhealthy after "), "{ends:?}");
}

/// It is lost first, and released then.
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_held_for_long_enough_has_ended_once() {
    let (setup, _, recorder) = setup(1);
    let granted = setup.acquire("r", TTL).await;
    let max_hold = MaxHold::Asked(Duration::from_secs(60));
    setup.keep(Holding { max_hold, ..setup.holding("r", &granted) });
    sleep(Duration::from_secs(61)).await;
    assert_eq!(ends(&recorder), ["max_hold after 60s"]);
    assert_eq!(recorder.recorded().held, 0);
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_finds_no_place_is_dropped() {
    let (setup, _, recorder) = setup(1);
    for resource in ["r1", "r2"] {
        setup.hold(resource).await;
        let resource = setup.resource(resource);
        let until = tokio::time::Instant::now() + TTL;
        setup.engine.force_unlock(resource, None, until).await.unwrap();
    }
    assert_eq!(ends(&recorder), ["forced after 0ns", "forced after 0ns", "notice dropped"]);
}
