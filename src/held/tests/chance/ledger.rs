//! Records what happens to each lock, and checks that it may happen.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use leasehold_lock::{Instant, Renewed};

use super::{Granted, faulty_backend::Outcome, safe_deadline};
use crate::Cause;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Fault(Outcome),
    /// A call takes this long, which may be too long.
    Takes(Duration),
    /// A renewal was sent, took place, ended.
    Renews,
    RenewalHappened,
    RenewalEnded,
    AppRenews,
    AppRenewed,
    /// An unlock was asked for, sent, took place, was answered.
    Unlocking,
    UnlockSent,
    UnlockHappened,
    Unlocked,
    NotUnlocked(Cause),
    /// The caller did not wait for the answer, which may have said that it was unlocked.
    UnlockLeft,
    Forcing,
    StreamEnded,
    /// The loss was reported to the holder.
    Reported(Cause),
}

#[derive(Debug)]
struct Lock {
    ttl: Duration,
    safe_until: Instant,
    renewed: bool,
    release_at: Option<Instant>,
    in_flight: i32,
    last_sent: Option<Instant>,
    app_renewals: i32,
    faulted: bool,
    forced: bool,
    unlocking: bool,
    /// An unlock that was asked for took place, whether its answer was awaited or not.
    freed: bool,
    /// It ended with its holder's knowledge.
    unlocked: bool,
    reported: Option<Cause>,
    stream_ended: Option<Instant>,
}

pub(super) struct Ledger(Mutex<State>);

struct State {
    begun: Instant,
    /// Renewals wait for each other.
    few_places: bool,
    locks: BTreeMap<u32, Lock>,
    /// Since when the app is unhealthy; whether it ever was.
    unhealthy_since: Option<Instant>,
    was_unhealthy: bool,
    log: String,
    violations: Vec<String>,
}

impl Ledger {
    pub(super) fn begin(few_places: bool) -> Self {
        Self(Mutex::new(State {
            few_places,
            begun: Instant::now(),
            locks: BTreeMap::new(),
            unhealthy_since: None,
            was_unhealthy: false,
            log: String::new(),
            violations: Vec::new(),
        }))
    }

    pub(super) fn held(
        &self,
        number: u32,
        granted: &Granted,
        renewed: bool,
        max_hold: Option<Duration>,
        streamed: bool,
    ) {
        let mut state = self.state();
        // A slow renewal that is under way already delays this lock too.
        let faulted = state.few_places
            && state.locks.values().any(|lock| lock.faulted && lock.in_flight > 0);
        state.locks.insert(
            number,
            Lock {
                ttl: granted.ttl,
                safe_until: safe_deadline(granted.since, granted.ttl),
                renewed,
                release_at: max_hold.map(|max_hold| granted.since + max_hold),
                in_flight: 0,
                last_sent: None,
                app_renewals: 0,
                faulted,
                forced: false,
                unlocking: false,
                freed: false,
                unlocked: false,
                reported: None,
                stream_ended: None,
            },
        );
        let ttl = granted.ttl;
        state.line(&format!("r{number} Held {ttl:?} {renewed} {max_hold:?} {streamed}"));
    }

    pub(super) fn health(&self, is_healthy: bool) {
        let mut state = self.state();
        state.unhealthy_since = (!is_healthy).then(Instant::now);
        state.was_unhealthy |= !is_healthy;
        state.line(&format!("healthy {is_healthy}"));
    }

    /// The engine is about to get the answer of a renewal.
    pub(super) fn renewed(&self, number: u32, renewed: Renewed) {
        let mut state = self.state();
        if let Some(lock) = state.locks.get_mut(&number) {
            lock.safe_until = safe_deadline(renewed.since, renewed.ttl);
        }
    }

    pub(super) fn safe_until(&self, number: u32) -> Instant {
        self.state().locks[&number].safe_until
    }

    pub(super) fn note(&self, number: u32, what: What) {
        let mut state = self.state();
        state.line(&format!("r{number} {what:?}"));
        let (now, unhealthy_since, was_unhealthy) =
            (Instant::now(), state.unhealthy_since, state.was_unhealthy);
        if state.few_places && matches!(what, What::Fault(_) | What::Takes(_)) {
            // A slow renewal delays those of the other locks.
            for lock in state.locks.values_mut() {
                let _ = lock.see(what, now, unhealthy_since, was_unhealthy);
            }
        }
        if let Some(lock) = state.locks.get_mut(&number)
            && let Some(wrong) = lock.see(what, now, unhealthy_since, was_unhealthy)
        {
            state.wrong(number, &wrong);
        }
    }

    pub(super) fn wrong(&self, number: u32, what: &str) {
        self.state().wrong(number, what);
    }

    /// Checks what is left when all locks have run out.
    pub(super) fn left(&self, closed: bool, held: usize, records: usize) {
        let mut state = self.state();
        if !closed || held > 0 || records > 0 {
            state.violations.push(format!(
                "left behind: closed {closed}, {held} held, {records} in the store"
            ));
        }
        let unreported: Vec<u32> = state
            .locks
            .iter()
            .filter(|(_, lock)| lock.reported.is_none() && lock.stream_ended.is_none())
            .filter(|(_, lock)| !lock.unlocked && !lock.freed)
            .map(|(number, _)| *number)
            .collect();
        for number in unreported {
            state.wrong(number, "ran out without a report");
        }
    }

    pub(super) fn close(&self) -> (String, Vec<String>) {
        let mut state = self.state();
        (std::mem::take(&mut state.log), std::mem::take(&mut state.violations))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    fn line(&mut self, what: &str) {
        let at_us = self.begun.elapsed().as_micros();
        let _ = writeln!(self.log, "{at_us:>10} us  {what}");
    }

    fn wrong(&mut self, number: u32, what: &str) {
        let at_us = self.begun.elapsed().as_micros();
        self.violations.push(format!("r{number} at {at_us} us {what}"));
    }
}

impl Lock {
    /// Records an event. Returns what is wrong with it, if anything.
    fn see(
        &mut self,
        what: What,
        now: Instant,
        unhealthy_since: Option<Instant>,
        was_unhealthy: bool,
    ) -> Option<String> {
        match what {
            What::Fault(_) => self.faulted = true,
            // The engine sends another renewal after a quarter of the TTL.
            What::Takes(time) => self.faulted |= time >= self.ttl / 4,
            What::Renews => return self.renews(now, unhealthy_since),
            What::RenewalHappened if self.unlocked => {
                return Some("was renewed after its unlock was answered".into());
            }
            What::RenewalEnded => self.in_flight -= 1,
            What::AppRenews => self.app_renewals += 1,
            What::AppRenewed => self.app_renewals -= 1,
            What::Unlocking => self.unlocking = true,
            What::UnlockHappened => {
                self.freed |= self.unlocking;
                // An app may renew while it unlocks; nothing orders the two.
                if self.in_flight > 0 && !self.forced && self.app_renewals == 0 {
                    return Some("was unlocked while a renewal was under way".into());
                }
            }
            What::Unlocked => self.unlocked = true,
            // The answer to its own call informed the app.
            What::NotUnlocked(_) | What::UnlockLeft => self.freed = true,
            What::Forcing => self.forced = true,
            What::StreamEnded => self.stream_ended = Some(now),
            What::Reported(cause) => return self.reported(cause, now, was_unhealthy),
            _ => {}
        }
        None
    }

    fn renews(&mut self, now: Instant, unhealthy_since: Option<Instant>) -> Option<String> {
        self.in_flight += 1;
        let by_app = self.app_renewals > 0;
        // A renewal that began in the same instant is cancelled before the release is sent.
        let stream_ended = self.stream_ended.is_some_and(|at| at < now);
        let sent = self.last_sent.replace(now);
        // Without an answer for so long the engine sends another.
        let is_soon = sent.is_some_and(|sent| now < sent + self.ttl / 4);
        if self.in_flight > 1 && is_soon {
            Some("has two renewals under way".into())
        } else if self.unlocked || self.reported.is_some() || stream_ended {
            (!by_app).then(|| "is renewed although it is over".into())
        } else if !self.renewed && !by_app {
            Some("is renewed, which is its app's to do".into())
        } else if unhealthy_since.is_some_and(|since| since < now) && !by_app {
            Some("is renewed for an app that is unhealthy".into())
        } else {
            None
        }
    }

    fn reported(&mut self, cause: Cause, now: Instant, was_unhealthy: bool) -> Option<String> {
        let again = self.reported.replace(cause).is_some();
        let early = now < self.safe_until;
        let late = now > self.safe_until + Duration::from_millis(1);
        let may_be = match cause {
            Cause::Forced => self.forced,
            Cause::MaxHold => self.release_at.is_some_and(|at| now >= at),
            Cause::Unhealthy => was_unhealthy && !early,
            // The app may have become healthy too late for the renewal to succeed.
            Cause::Unreachable => (self.faulted || was_unhealthy) && !early,
            Cause::Expired => (!self.renewed || self.unlocking) && !early,
        };
        if again {
            Some("was reported twice".into())
        } else if self.unlocked {
            Some(format!("was reported as {cause} after its unlock was answered"))
        } else if late {
            Some(format!("was reported as {cause} late, {:?}", now - self.safe_until))
        } else if !may_be {
            Some(format!("was reported as {cause}, early {early}: {self:?}"))
        } else {
            None
        }
    }
}
