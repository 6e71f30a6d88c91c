use tokio::time::{advance, timeout};

use super::*;
use crate::clock::tests::SLEPT;

const VALID: Duration = Duration::from_secs(3);
const DRIFT: Duration = Duration::from_millis(200);
const STEP: Duration = Duration::from_millis(1);

fn limited(stop_before: Duration, max_hold: Option<Duration>) -> Held {
    let now = Instant::now();
    let grant = Grant {
        resource: "order".to_owned(),
        namespace: Vec::new(),
        mode: Mode::Exclusive,
        lock_id: String::new(),
        grant_id: String::new(),
        token: 1,
    };
    let max_hold =
        max_hold.map(|max_hold| MaxHold { end: now + max_hold, from: now + max_hold - DRIFT });
    Held::new(grant, Limits { stop_before, max_hold }, now + VALID, || {})
}

fn held() -> Held {
    limited(Duration::ZERO, None)
}

fn cause(held: &Held) -> Option<Cause> {
    held.end().map(|end| end.unwrap_err().cause)
}

#[tokio::test(start_paused = true)]
async fn it_is_lost_at_its_deadline_and_not_before() {
    let held = limited(VALID / 3, None);
    advance(VALID * 2 / 3 - STEP).await;
    assert_eq!((held.left(), held.end()), (STEP, None));
    advance(STEP).await;
    assert_eq!(cause(&held), Some(Cause::Unconfirmed));
    assert!(!held.join());
    assert_eq!(held.leave(&OnceLock::new()), Some(Left::Lost));
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_moves_the_deadline() {
    let held = held();
    held.confirm(Instant::now() + 2 * VALID);
    assert!(timeout(2 * VALID - STEP, held.wait(|| held.end())).await.is_err());
    assert_eq!(held.wait(|| held.end()).await.unwrap_err().cause, Cause::Unconfirmed);
}

#[tokio::test(start_paused = true)]
async fn nothing_revives_a_lock_whose_deadline_has_passed() {
    let held = held();
    advance(VALID).await;
    // The clock was not read in between.
    held.confirm(Instant::now() + VALID);
    assert_eq!(cause(&held), Some(Cause::Unconfirmed));
    held.lose(Cause::Forced);
    assert_eq!(cause(&held), Some(Cause::Unconfirmed), "the first cause stays");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_suspended_machine_counts() {
    let held = held();
    SLEPT.set(VALID - STEP);
    assert_eq!((held.left(), held.end()), (STEP, None));
    SLEPT.set(VALID);
    assert_eq!(cause(&held), Some(Cause::Unconfirmed));
}

#[tokio::test(start_paused = true)]
async fn max_hold_caps_the_deadline_and_is_its_cause() {
    // Before the TTL, within the drift allowance of it, and by an answer of the sidecar.
    for max_hold in [VALID / 2, VALID + DRIFT, 2 * VALID] {
        let held = limited(Duration::ZERO, Some(max_hold));
        held.confirm(Instant::now() + VALID.max(max_hold - DRIFT));
        advance(max_hold).await;
        assert_eq!(cause(&held), Some(Cause::MaxHold), "{max_hold:?}");
    }
    let late = limited(Duration::ZERO, Some(VALID));
    late.confirm(Instant::now() + 2 * VALID);
    assert_eq!(late.left(), VALID);
    let unconfirmed = limited(Duration::ZERO, Some(VALID + DRIFT + STEP));
    advance(VALID).await;
    assert_eq!(cause(&unconfirmed), Some(Cause::Unconfirmed));
}

#[tokio::test]
async fn an_endless_stop_before_loses_the_lock_at_once() {
    let held = limited(Duration::MAX, Some(10 * VALID));
    assert_eq!(cause(&held), Some(Cause::Unconfirmed));
}

#[tokio::test]
async fn an_unlock_ends_once_and_no_loss_comes_after_it() {
    let (held, left) = (held(), OnceLock::new());
    assert_eq!(held.leave(&left), Some(Left::Held));
    assert_eq!(held.leave(&left), None);
    held.lose(Cause::Disconnected);
    assert_eq!(held.wait(|| held.end()).await, Ok(()));
    held.end_unlock(None);
    assert_eq!(held.unlocked().await, Ok(()));
}

#[tokio::test]
async fn the_last_handle_ends_it() {
    let (held, outer, inner) = (held(), OnceLock::new(), OnceLock::new());
    assert!(held.join());
    assert_eq!(held.leave(&outer), Some(Left::ToOthers));
    assert_eq!(held.leave(&outer), None);
    assert_eq!(held.end(), None);
    assert_eq!(held.leave(&inner), Some(Left::Held));
    assert!(!held.join());
}

#[tokio::test]
async fn every_handle_of_a_lost_lock_is_told() {
    let (held, outer, inner) = (held(), OnceLock::new(), OnceLock::new());
    assert!(held.join());
    held.lose(Cause::Forced);
    assert_eq!(held.leave(&inner), Some(Left::LostToOthers));
    assert_eq!(held.unlocked().await.unwrap_err().cause, Cause::Forced);
    assert_eq!(held.leave(&outer), Some(Left::Lost));
}
