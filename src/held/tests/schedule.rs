//! When a held lock is renewed, released and lost.

use leasehold_lock::safe_deadline;

use super::*;
use crate::{
    Cause,
    belief::Belief,
    schedule::{Due, RenewalSchedule},
};

fn renewed(since: Instant) -> RenewalSchedule {
    of(since, TTL, true, MaxHold::Unlimited)
}

fn of(since: Instant, ttl: Duration, automatic: bool, max_hold: MaxHold) -> RenewalSchedule {
    RenewalSchedule::new(since, Belief::new(since, ttl, ttl), automatic, max_hold, 0.0)
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_due_at_about_a_third_of_the_ttl() {
    let now = Instant::now();
    for (jitter, expected_ms) in [(0.0, 10_000), (1.0, 8_000)] {
        let belief = Belief::new(now, TTL, TTL);
        let schedule = RenewalSchedule::new(now, belief, true, MaxHold::Unlimited, jitter);
        assert_eq!(schedule.next() - now, Duration::from_millis(expected_ms));
    }
    let schedule = renewed(now);
    assert_eq!(schedule.due(now + Duration::from_millis(9_999)), None);
    assert_eq!(schedule.due(now + TTL / 3), Some(Due::Renew));
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_lost_at_its_safe_deadline_while_a_renewal_is_under_way() {
    let now = Instant::now();
    let mut schedule = renewed(now);
    schedule.queue(0);
    assert_eq!(schedule.next(), safe_deadline(now, TTL));
    assert_eq!(schedule.due(schedule.next()), Some(Due::Lose(Cause::Unreachable)));
}

/// Trap: sidecar 50
#[tokio::test(start_paused = true)]
async fn a_request_for_a_shorter_ttl_brings_the_renewal_forward() {
    let now = Instant::now();
    let mut schedule = renewed(now);
    let shorter = Duration::from_secs(3);
    let sent = now + Duration::from_secs(1);
    schedule.sends(sent, shorter);
    let due = sent + shorter / 3;
    assert_eq!(schedule.next(), due);
    assert_eq!(schedule.due(due), Some(Due::Renew), "though nothing was answered");
    schedule.sends(sent, TTL);
    assert_eq!(schedule.next(), due);
}

#[tokio::test(start_paused = true)]
async fn one_failure_is_tried_again_and_a_success_counts_from_its_sending() {
    let now = Instant::now();
    let mut schedule = renewed(now);
    let failed_at = now + TTL / 3;
    schedule.queue(0);
    schedule.failed(failed_at, 0.5);
    assert!(schedule.next() > failed_at && schedule.next() < failed_at + TTL / 8);
    let since = schedule.next();
    schedule.queue(0);
    let sending = schedule.sends(since, TTL);
    schedule.renewed(&sending, Renewed { id: None, ttl: TTL, since }, 0.0);
    assert_eq!(schedule.belief.safe_deadline(), safe_deadline(since, TTL));
    assert_eq!(schedule.next(), since + TTL / 3);
}

/// A lock whose unlock had failed was renewed again because the app's own renewal failed, too.
#[tokio::test(start_paused = true)]
async fn after_an_unlock_a_failed_renewal_of_the_app_is_not_tried_again() {
    let now = Instant::now();
    let mut schedule = renewed(now);
    schedule.stop();
    schedule.sends(now, TTL);
    schedule.failed(now, 0.5);
    assert_eq!(schedule.next(), safe_deadline(now, TTL));
}

#[tokio::test(start_paused = true)]
async fn retries_are_spaced_out_and_go_on_to_the_safe_deadline() {
    let now = Instant::now();
    let mut schedule = renewed(now);
    let mut tries = 0;
    let lost_at = loop {
        let at = schedule.next();
        match schedule.due(at) {
            Some(Due::Renew) => {
                tries += 1;
                schedule.queue(0);
                schedule.failed(at, 0.5);
            }
            Some(Due::Lose(Cause::Unreachable)) => break at,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(lost_at, safe_deadline(now, TTL));
    assert!((10..=20).contains(&tries), "{tries}");
}

/// The pauses between retries grew to a sixth of the TTL, so that some locks were lost although
/// their store had answered again for seconds.
#[tokio::test(start_paused = true)]
async fn a_lock_survives_an_outage_of_a_bit_more_than_half_its_ttl() {
    for ttl_ms in [1_000, 30_000, 600_000] {
        let ttl = Duration::from_millis(ttl_ms);
        for jitter in [0.0, 0.3, 0.7, 1.0] {
            let now = Instant::now();
            let mut schedule = of(now, ttl, true, MaxHold::Unlimited);
            let outage_end = schedule.next() + ttl.mul_f64(0.55);
            while schedule.next() < outage_end {
                assert_eq!(schedule.due(schedule.next()), Some(Due::Renew));
                let at = schedule.next();
                schedule.queue(0);
                schedule.failed(at, jitter);
            }
            assert_eq!(schedule.due(schedule.next()), Some(Due::Renew), "{ttl_ms} {jitter}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_app_decides_how_long_it_is_held() {
    let now = Instant::now();
    let schedule = of(now, TTL, true, MaxHold::Asked(TTL / 6));
    assert_eq!(schedule.due(now + TTL / 6), Some(Due::Release));
    assert_eq!(schedule.due(now + TTL), Some(Due::Lose(Cause::Unreachable)));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_asks_for_what_was_asked_for_not_for_what_was_granted() {
    let now = Instant::now();
    let asked = Duration::from_millis(2500);
    let granted = Duration::from_secs(3);
    let belief = Belief::new(now, granted, asked);
    let mut schedule = RenewalSchedule::new(now, belief, true, MaxHold::Unlimited, 0.0);
    let extent = |schedule: &RenewalSchedule| {
        let belief = schedule.belief;
        (belief.ttl(), belief.asked())
    };
    assert_eq!(extent(&schedule), (granted, asked));
    let sending = schedule.sends(now, asked);
    schedule.renewed(&sending, Renewed { id: None, ttl: granted, since: now }, 0.0);
    assert_eq!(extent(&schedule), (granted, asked));
    assert_eq!(schedule.next(), now + granted / 3);
}

#[tokio::test(start_paused = true)]
async fn without_renewal_it_expires() {
    let now = Instant::now();
    let schedule = of(now, TTL, false, MaxHold::Unlimited);
    assert_eq!(schedule.next(), safe_deadline(now, TTL));
    assert_eq!(schedule.due(schedule.next()), Some(Due::Lose(Cause::Expired)));
}

#[tokio::test(start_paused = true)]
async fn what_was_parked_is_renewed_when_the_app_is_healthy_again() {
    let now = Instant::now();
    let mut schedule = renewed(now);
    schedule.park();
    assert_eq!(schedule.due(now + TTL / 3), None);
    assert_eq!(schedule.due(schedule.next()), Some(Due::Lose(Cause::Unhealthy)));
    assert!(schedule.resume(now + TTL / 2));
    assert_eq!(schedule.due(now + TTL / 2), Some(Due::Renew));
    assert!(!schedule.resume(now + TTL / 2), "it was not parked");
}

#[tokio::test(start_paused = true)]
async fn the_shortest_ttl_leaves_time_for_two_attempts() {
    let now = Instant::now();
    let ttl = Duration::from_millis(100);
    let mut schedule = of(now, ttl, true, MaxHold::Unlimited);
    let first_until = schedule.next() + schedule.attempt_patience();
    schedule.queue(0);
    schedule.failed(first_until, 0.5);
    assert_eq!(schedule.due(schedule.next()), Some(Due::Renew));
}
