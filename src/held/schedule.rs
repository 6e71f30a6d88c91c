//! The next action for a held lock and its time: decisions only, without
//! waiting and without a backend.

use std::time::Duration;

use leasehold_lock::{Instant, Renewed};
use tokio::task::JoinHandle;

use super::{
    Cause, MaxHold,
    belief::{Belief, Sending},
    max_hold::ReleaseAt,
    renewal::Renewal,
};

/// A renewal is due when this part of the TTL has passed.
const RENEWAL_PART: u32 = 3;
/// How far renewals are spread, as a part of the TTL. Without it, locks that were
/// acquired together would always be renewed together.
const JITTER_PART: u32 = 15;
/// A retry follows after this part of the time that is left to the safe deadline. So a lock is not
/// lost if an outage ends shortly before its safe deadline.
const RETRY_PART_OF_REST: u32 = 8;
/// The shortest pause before a retry, as a part of the TTL.
const RETRY_PART_MIN: u32 = 32;
/// After this part of the TTL without an answer to a renewal, another is sent.
const ATTEMPT_PART: u32 = 4;
const RETRY_DELAY_MIN: Duration = Duration::from_millis(10);

/// A due action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Start a renewal.
    Renew,
    /// Release the lock: it was held for the longest allowed time.
    Release,
    /// The holder must no longer rely on the lock.
    Lose(Cause),
}

/// When a held lock is renewed, released and lost.
#[derive(Debug)]
pub(super) struct RenewalSchedule {
    /// Until when the holder may rely on the grant.
    pub(super) belief: Belief,
    release_at: ReleaseAt,
    pub(super) renewal: Renewal,
    /// Whether the engine renews the lock, or only its app.
    pub(super) automatic: bool,
    /// Whether an unlock has begun that did not end the grant. Until the app renews the lock,
    /// nothing else is done to it.
    is_stopped: bool,
}

impl RenewalSchedule {
    /// Without renewal, until one is due or the app renews. `jitter` is from 0 to 1.
    pub(super) fn new(
        since: Instant,
        belief: Belief,
        automatic: bool,
        max_hold: MaxHold,
        jitter: f64,
    ) -> Self {
        let mut schedule = Self {
            belief,
            release_at: ReleaseAt::new(since, max_hold),
            renewal: Renewal::Off,
            automatic,
            is_stopped: false,
        };
        schedule.wait_for_renewal(since, jitter);
        schedule
    }

    /// When the lock is released or lost, unless it is renewed.
    pub(super) fn ends(&self) -> Instant {
        let safe_deadline = self.belief.safe_deadline();
        self.release_at().map_or(safe_deadline, |at| at.min(safe_deadline))
    }

    /// When the lock is released, if nothing ends it before.
    fn release_at(&self) -> Option<Instant> {
        self.release_at.instant().filter(|_| !self.is_stopped)
    }

    /// The part of the TTL that is left at `now`, if the engine renews the lock.
    pub(super) fn remaining_ratio(&self, now: Instant) -> Option<f64> {
        let left = self.belief.safe_deadline().saturating_duration_since(now);
        self.automatic.then(|| left.as_secs_f64() / self.belief.ttl().as_secs_f64())
    }

    /// Whether it is released when its app asked for that.
    pub(super) fn has_limit_of_its_app(&self) -> bool {
        matches!(self.release_at, ReleaseAt::Asked(_))
    }

    /// When something comes due.
    pub(super) fn next(&self) -> Instant {
        let ends = self.ends();
        match self.renewal {
            Renewal::Waiting(at) => at.min(ends),
            _ => ends,
        }
    }

    /// What is due at `now`: a loss before a release, and that before a renewal.
    pub(super) fn due(&self, now: Instant) -> Option<Due> {
        if now >= self.belief.safe_deadline() {
            return Some(Due::Lose(self.cause()));
        }
        if self.release_at().is_some_and(|at| now >= at) {
            return Some(Due::Release);
        }
        matches!(self.renewal, Renewal::Waiting(at) if now >= at).then_some(Due::Renew)
    }

    /// Why the lock is lost, if the store turns out at `now` not to have the grant.
    pub(super) fn cause_at(&self, now: Instant) -> Cause {
        match self.due(now) {
            Some(Due::Lose(cause)) => cause,
            _ => Cause::Forced,
        }
    }

    fn cause(&self) -> Cause {
        match self.renewal {
            Renewal::Parked => Cause::Unhealthy,
            Renewal::Off => Cause::Expired,
            _ if self.automatic => Cause::Unreachable,
            _ => Cause::Expired,
        }
    }

    /// A renewal waits for a place in the lane of this server. Returns its key there: the
    /// nearest safe deadline is served first.
    pub(super) fn queue(&mut self, server: u64) -> Instant {
        let at = self.belief.safe_deadline();
        self.renewal = Renewal::Queued { server, at };
        at
    }

    /// After how long without an answer to a renewal another is sent.
    pub(super) fn attempt_patience(&self) -> Duration {
        self.belief.ttl() / ATTEMPT_PART
    }

    /// The app is unhealthy: nothing is renewed until [`RenewalSchedule::resume`].
    pub(super) fn park(&mut self) {
        self.renewal = Renewal::Parked;
    }

    /// The app is healthy again: what was parked is due at `now`. Returns whether it
    /// was parked.
    pub(super) fn resume(&mut self, now: Instant) -> bool {
        let parked = matches!(self.renewal, Renewal::Parked);
        if parked {
            self.renewal = Renewal::Waiting(now);
        }
        parked
    }

    /// An unlock begins: from here the grant only runs out, unless the app renews it.
    /// Returns the renewal under way, which must end before the unlock is sent.
    pub(super) fn stop(&mut self) -> Option<JoinHandle<()>> {
        self.is_stopped = true;
        let task = self.renewal.take_task();
        self.renewal = Renewal::Off;
        task
    }

    /// A request that asks for the TTL `asked` is sent at `at`.
    pub(super) fn sends(&mut self, at: Instant, asked: Duration) -> Sending {
        let sending = self.belief.sends(at, asked);
        // The request may be carried out although its answer is lost, so the next
        // renewal is due as early as if it was answered.
        if sending.shortens()
            && let Renewal::Waiting(due) = &mut self.renewal
        {
            *due = (at + self.belief.ttl() / RENEWAL_PART).min(*due);
        }
        sending
    }

    /// A renewal succeeded.
    pub(super) fn renewed(&mut self, sending: &Sending, renewed: Renewed, jitter: f64) {
        self.belief.renewed(sending, renewed);
        self.is_stopped = false;
        self.wait_for_renewal(renewed.since, jitter);
    }

    /// A renewal failed, or nobody knows: tried again until the safe deadline.
    pub(super) fn failed(&mut self, now: Instant, jitter: f64) {
        if !self.automatic || self.is_stopped {
            self.renewal = Renewal::Off;
            return;
        }
        let rest = self.belief.safe_deadline().saturating_duration_since(now);
        let delay = (rest / RETRY_PART_OF_REST)
            .max(self.belief.ttl() / RETRY_PART_MIN)
            .max(RETRY_DELAY_MIN);
        self.renewal = Renewal::Waiting(now + delay.mul_f64(0.75 + jitter / 2.0));
    }

    /// A renewal found no grant, which an unlock may have ended: none is tried again.
    pub(super) fn found_nothing(&mut self) {
        self.renewal = Renewal::Off;
    }

    /// The lock is released after `max_hold`, whatever limit there was before.
    pub(super) fn limit(&mut self, since: Instant, max_hold: Duration) {
        self.release_at = ReleaseAt::new(since, MaxHold::Asked(max_hold));
    }

    /// The lock lasts until its TTL ends, unless its app renews it.
    pub(super) fn detach(&mut self) {
        self.release_at = ReleaseAt::Never;
        self.automatic = false;
        self.renewal = Renewal::Off;
    }

    /// A replay found the grant: `replay` is what its answer says on its own. Returns
    /// the renewal that was under way.
    pub(super) fn replayed(&mut self, replay: Self) -> Option<JoinHandle<()>> {
        let task = self.renewal.take_task();
        let mut belief = self.belief;
        belief.replayed(replay.belief);
        let release_at = self.release_at.after_replay(replay.release_at);
        *self = Self { belief, release_at, ..replay };
        task
    }

    /// The next renewal is due a part of the TTL after `since`, if it is the engine's.
    fn wait_for_renewal(&mut self, since: Instant, jitter: f64) {
        let ttl = self.belief.ttl();
        let spread = (ttl / JITTER_PART).mul_f64(jitter);
        self.renewal = if self.automatic {
            Renewal::Waiting(since + ttl / RENEWAL_PART - spread)
        } else {
            Renewal::Off
        };
    }
}
