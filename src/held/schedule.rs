//! What a held lock needs next, and when: decisions only, no waiting and no
//! backend.

use std::time::Duration;

use tokio::time::Instant;

use super::Cause;
use crate::lock::{Renewed, Ttl, safe_deadline};

/// A renewal is due when this part of the TTL has passed.
const RENEWAL_PART: u32 = 3;
/// How far a renewal is spread, as a part of the TTL, so that locks taken
/// together are not renewed together for ever.
const JITTER_PART: u32 = 15;
/// The first retry follows after this part of the TTL; each further one after
/// twice as long, up to [`RETRY_PART_MAX`].
const RETRY_PART_MIN: u32 = 32;
const RETRY_PART_MAX: u32 = 8;
/// One renewal may take this part of the TTL, so that there is time for another.
const ATTEMPT_PART: u32 = 4;
const RETRY_DELAY_MIN: Duration = Duration::from_millis(10);

/// Where the renewal of one lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    /// Not ours to do (any more).
    Off,
    /// Due then.
    At(Instant),
    /// Under way, or in the queue for it.
    Busy,
    /// Due, but the app is unhealthy.
    Parked,
}

/// What has come due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Start a renewal.
    Renew,
    /// Release it: it was held for as long as the app allowed.
    Release,
    /// It must no longer be believed in.
    Lose(Cause),
}

/// Until when the holder may believe in the grant, and what that rests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Belief {
    /// The TTL granted, or what a request asked for that may have been granted.
    ttl: Duration,
    /// What renewals ask for. A store may grant more, so the TTL that it granted
    /// may be above its `maxTTL`.
    asked: Duration,
    safe_deadline: Instant,
}

/// For how long a lock is held at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxHold {
    /// Without limit: something else ends it.
    Unlimited,
    /// The sidecar's own limit, because nothing else would end the lock of an
    /// app that is gone.
    Default(Duration),
    /// The limit that the app asked for.
    Asked(Duration),
}

/// When a lock is released; see [`MaxHold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReleaseAt {
    Never,
    Default(Instant),
    Asked(Instant),
}

impl ReleaseAt {
    fn new(since: Instant, max_hold: MaxHold) -> Self {
        // A moment beyond what the clock can count never comes.
        let at = |after| since.checked_add(after);
        match max_hold {
            MaxHold::Unlimited => Self::Never,
            MaxHold::Default(after) => at(after).map_or(Self::Never, Self::Default),
            MaxHold::Asked(after) => at(after).map_or(Self::Never, Self::Asked),
        }
    }

    fn instant(self) -> Option<Instant> {
        match self {
            Self::Never => None,
            Self::Default(at) | Self::Asked(at) => Some(at),
        }
    }

    /// The limit of a lock that a replay found: it does not start again.
    fn after_replay(self, replay: Self) -> Self {
        match (self, replay) {
            (Self::Asked(first), Self::Asked(again)) => Self::Asked(first.min(again)),
            (asked @ Self::Asked(_), _) | (_, asked @ Self::Asked(_)) => asked,
            (Self::Default(first), Self::Default(again)) => Self::Default(first.min(again)),
            // A stream, or an app that renews by itself, ends the lock now.
            (_, replay) => replay,
        }
    }
}

/// When a held lock is renewed, released and believed lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct RenewalSchedule {
    belief: Belief,
    /// When the latest request that may have changed the TTL was sent.
    sent: Instant,
    release_at: ReleaseAt,
    renewal: Renewal,
    failures: u8,
}

impl RenewalSchedule {
    /// A grant of `ttl` that counts from `since`, for which `asked` was asked.
    /// `jitter` is from 0 to 1.
    pub(super) fn new(
        since: Instant,
        ttl: Duration,
        asked: Duration,
        renewed: bool,
        max_hold: MaxHold,
        jitter: f64,
    ) -> Self {
        let mut schedule = Self {
            belief: Belief { ttl, asked, safe_deadline: safe_deadline(since, ttl) },
            sent: since,
            release_at: ReleaseAt::new(since, max_hold),
            renewal: Renewal::Off,
            failures: 0,
        };
        if renewed {
            schedule.renewal = schedule.next_renewal(since, jitter);
        }
        schedule
    }

    /// The TTL that was granted.
    pub(super) fn ttl(&self) -> Duration {
        self.belief.ttl
    }

    /// The TTL that renewals ask for.
    pub(super) fn asked(&self) -> Duration {
        self.belief.asked
    }

    /// Until when the holder may believe in the grant.
    pub(super) fn safe_deadline(&self) -> Instant {
        self.belief.safe_deadline
    }

    /// When something comes due.
    pub(super) fn next(&self) -> Instant {
        let release_at = self.release_at.instant();
        let safe_deadline = self.safe_deadline();
        let next = release_at.map_or(safe_deadline, |at| at.min(safe_deadline));
        match self.renewal {
            Renewal::At(at) => at.min(next),
            Renewal::Off | Renewal::Busy | Renewal::Parked => next,
        }
    }

    /// What is due at `now`, the gravest first.
    pub(super) fn due(&self, now: Instant) -> Option<Due> {
        if now >= self.safe_deadline() {
            return Some(Due::Lose(self.cause()));
        }
        if self.release_at.instant().is_some_and(|at| now >= at) {
            return Some(Due::Release);
        }
        matches!(self.renewal, Renewal::At(at) if now >= at).then_some(Due::Renew)
    }

    /// A renewal is in the queue or under way.
    pub(super) fn begin(&mut self) {
        self.renewal = Renewal::Busy;
    }

    /// The app is unhealthy: nothing is renewed until [`RenewalSchedule::resume`].
    pub(super) fn park(&mut self) {
        self.renewal = Renewal::Parked;
    }

    /// The app is healthy again: what was parked is due at `now`. Whether it
    /// was.
    pub(super) fn resume(&mut self, now: Instant) -> bool {
        let parked = self.renewal == Renewal::Parked;
        if parked {
            self.renewal = Renewal::At(now);
        }
        parked
    }

    /// Ends renewal: from here the grant only runs out.
    pub(super) fn stop(&mut self) {
        self.renewal = Renewal::Off;
        self.release_at = ReleaseAt::Never;
    }

    /// A request is sent that asks for `asked` anew: what it may grant is
    /// believed in no longer than that, and no more is asked for, until it is
    /// answered. Returns the belief before it.
    pub(super) fn sends(&mut self, sent: Instant, asked: Duration) -> Belief {
        let before = self.belief;
        let belief = &mut self.belief;
        self.sent = sent;
        belief.safe_deadline =
            belief.safe_deadline.min(safe_deadline(sent, asked.max(Ttl::MIN.duration())));
        if asked < belief.asked {
            belief.asked = asked;
            belief.ttl = belief.ttl.min(asked);
            // The request may be carried out although its answer is lost, so the next
            // renewal is due as early as if it was answered.
            let due = sent + belief.ttl / RENEWAL_PART;
            if let Renewal::At(at) = &mut self.renewal {
                *at = due.min(*at);
            }
        }
        before
    }

    /// What was sent at `sent` did not happen: the belief is what it was
    /// before, unless something was sent since.
    pub(super) fn did_not_happen(&mut self, sent: Instant, before: Belief) {
        if self.sent == sent {
            self.belief = before;
        }
    }

    /// A renewal that asked for `asked` succeeded. `keep_on` says whether the
    /// next is ours to do.
    pub(super) fn renewed(
        &mut self,
        renewed: Renewed,
        asked: Duration,
        keep_on: bool,
        jitter: f64,
    ) {
        let safe_deadline = safe_deadline(renewed.since, renewed.ttl);
        self.belief = Belief { ttl: renewed.ttl, asked, safe_deadline };
        self.failures = 0;
        self.renewal =
            if keep_on { self.next_renewal(renewed.since, jitter) } else { Renewal::Off };
    }

    /// A replay found the grant: `replay` is what its answer says on its own.
    /// If something was sent after the replay, that answer lengthens nothing.
    pub(super) fn replayed(&mut self, replay: Self) {
        let mut belief = replay.belief;
        if replay.sent < self.sent {
            belief.ttl = belief.ttl.min(self.belief.ttl);
            belief.safe_deadline = belief.safe_deadline.min(self.belief.safe_deadline);
        }
        let release_at = self.release_at.after_replay(replay.release_at);
        *self = Self { belief, release_at, sent: replay.sent.max(self.sent), ..replay };
    }

    /// A renewal failed, or nobody knows: tried again until the safe deadline.
    pub(super) fn failed(&mut self, now: Instant, keep_on: bool, jitter: f64) {
        if !keep_on {
            self.renewal = Renewal::Off;
            return;
        }
        let delay = (self.ttl() / RETRY_PART_MIN * (1 << self.failures.min(4)))
            .clamp(RETRY_DELAY_MIN, (self.ttl() / RETRY_PART_MAX).max(RETRY_DELAY_MIN));
        self.failures = self.failures.saturating_add(1);
        self.renewal = Renewal::At(now + delay.mul_f64(0.75 + jitter / 2.0));
    }

    /// Until when one renewal that starts at `now` may take.
    pub(super) fn attempt_until(&self, now: Instant) -> Instant {
        (now + self.ttl() / ATTEMPT_PART).min(self.safe_deadline())
    }

    fn next_renewal(&self, since: Instant, jitter: f64) -> Renewal {
        let spread = (self.ttl() / JITTER_PART).mul_f64(jitter);
        Renewal::At(since + self.ttl() / RENEWAL_PART - spread)
    }

    fn cause(&self) -> Cause {
        match self.renewal {
            Renewal::Off => Cause::Expired,
            Renewal::At(_) | Renewal::Busy => Cause::Unreachable,
            Renewal::Parked => Cause::Unhealthy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn renewed(since: Instant) -> RenewalSchedule {
        RenewalSchedule::new(since, TTL, TTL, true, MaxHold::Unlimited, 0.0)
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_is_due_at_about_a_third_of_the_ttl() {
        let now = Instant::now();
        for (jitter, expected_ms) in [(0.0, 10_000), (1.0, 8_000)] {
            let schedule =
                RenewalSchedule::new(now, TTL, TTL, true, MaxHold::Unlimited, jitter);
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
        schedule.begin();
        assert_eq!(schedule.next(), safe_deadline(now, TTL));
        assert_eq!(schedule.due(schedule.next()), Some(Due::Lose(Cause::Unreachable)));
    }

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
        schedule.begin();
        schedule.failed(failed_at, true, 0.5);
        assert!(schedule.next() > failed_at && schedule.next() < failed_at + TTL / 8);
        let since = schedule.next();
        schedule.begin();
        schedule.renewed(Renewed { ttl: TTL, since }, TTL, true, 0.0);
        assert_eq!(schedule.safe_deadline(), safe_deadline(since, TTL));
        assert_eq!(schedule.next(), since + TTL / 3);
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
                    schedule.begin();
                    schedule.failed(at, true, 0.5);
                }
                Some(Due::Lose(Cause::Unreachable)) => break at,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(lost_at, safe_deadline(now, TTL));
        assert!((5..=12).contains(&tries), "{tries}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_app_decides_how_long_it_is_held() {
        let now = Instant::now();
        let schedule = RenewalSchedule::new(now, TTL, TTL, true, MaxHold::Asked(TTL / 6), 0.0);
        assert_eq!(schedule.due(now + TTL / 6), Some(Due::Release));
        assert_eq!(schedule.due(now + TTL), Some(Due::Lose(Cause::Unreachable)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_replay_never_moves_a_limit_to_later() {
        use MaxHold::{Asked, Default, Unlimited};
        let since = Instant::now();
        let again = since + TTL;
        let hour = Duration::from_secs(3600);
        for (first, replay, released_at) in [
            (Default(hour), Default(hour), Some(since + hour)),
            (Asked(hour), Asked(hour), Some(since + hour)),
            (Asked(hour), Default(TTL), Some(since + hour)),
            (Asked(hour), Unlimited, Some(since + hour)),
            (Asked(hour), Asked(TTL), Some(again + TTL)),
            // Nothing limited it before, or something else ends it now.
            (Unlimited, Default(hour), Some(again + hour)),
            (Default(hour), Asked(TTL), Some(again + TTL)),
            (Default(hour), Unlimited, None),
        ] {
            let mut schedule = RenewalSchedule::new(since, TTL, TTL, true, first, 0.0);
            schedule.replayed(RenewalSchedule::new(again, TTL, TTL, true, replay, 0.0));
            let told = schedule.release_at.instant();
            assert_eq!(told, released_at, "{first:?} {replay:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_asks_for_what_was_asked_for_not_for_what_was_granted() {
        let now = Instant::now();
        let asked = Duration::from_millis(2500);
        let granted = Duration::from_secs(3);
        let mut schedule =
            RenewalSchedule::new(now, granted, asked, true, MaxHold::Unlimited, 0.0);
        assert_eq!((schedule.ttl(), schedule.asked()), (granted, asked));
        schedule.renewed(Renewed { ttl: granted, since: now }, asked, true, 0.0);
        assert_eq!((schedule.ttl(), schedule.asked()), (granted, asked));
        assert_eq!(schedule.next(), now + granted / 3);
    }

    #[tokio::test(start_paused = true)]
    async fn without_renewal_it_expires() {
        let now = Instant::now();
        let schedule = RenewalSchedule::new(now, TTL, TTL, false, MaxHold::Unlimited, 0.0);
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
        let mut schedule = RenewalSchedule::new(now, ttl, ttl, true, MaxHold::Unlimited, 0.0);
        let first_until = schedule.attempt_until(schedule.next());
        schedule.begin();
        schedule.failed(first_until, true, 0.5);
        assert_eq!(schedule.due(schedule.next()), Some(Due::Renew));
    }
}
