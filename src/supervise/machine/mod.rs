//! What the supervisor does and when: decisions only. It waits for nothing and calls nothing.
//!
//! ```text
//!                 Granted             Ready, in time            ended, and nothing is left
//!   ┌─────────┐ ──────────▶ ┌───────┐ ──────────────▶ ┌──────┐ ──────────────┐
//!   │ Waiting │             │ Ready │                 │ Runs │               ▼
//!   └─────────┘ ◀────────── └───────┘                 └──────┘         ┌───────────┐
//!        │        too late      │                        │             │ Releasing │
//!        │                      └── not started ─────────│───────────▶ └───────────┘
//!        │ a signal                                      │ KILL was not enough │ released, or
//!        └──────────────────────────────────────────────▶│ (not released)      │ not in time
//!                                                        ▼                     ▼
//!                                                             ┌──────┐
//!                                                             │ Over │
//!                                                             └──────┘
//! ```
//!
//! Only [`Action::Release`] and [`Action::ReleaseAndWait`] let the lock be released. Both are
//! returned only when nothing of the command is left.

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::time::Duration;

use leasehold_util::exit;

use crate::BootTime;

/// KILL is sent this long before the safe deadline, or [`KILL_PART`] of the TTL if that is less.
pub(crate) const KILL_BEFORE_MAX: Duration = Duration::from_millis(100);
const KILL_PART: u32 = 20;
/// TERM is sent at most this part of the TTL before the safe deadline.
const TERM_PART: u32 = 3;
/// How long after TERM a command is killed whose lock somebody else has ended.
pub(crate) const FORCED_GRACE: Duration = Duration::from_secs(1);
/// How long descendants are waited for before they are named.
const NAME_AFTER: Duration = Duration::from_secs(10);
/// How long what was killed may take to end.
const SURVIVES_MAX: Duration = Duration::from_secs(10);
/// How long a release may take.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);
/// How often children are looked for while they are killed.
const ROUND: Duration = Duration::from_millis(20);

/// What the command line asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// TERM is sent this long before the safe deadline, if the TTL is long enough.
    pub(crate) term_before: Duration,
    /// How long the lock is held at most.
    pub(crate) max_hold: Option<Duration>,
    /// Whether the lock is released when the command itself has ended.
    pub(crate) leave_daemons: bool,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The lock is held from now on.
    Granted { ttl: Duration },
    /// The lock was not acquired; the lock process has ended its work.
    Refused { exit: u8 },
    /// The command is prepared, and waits to be started.
    Ready,
    /// The command could not be started. Nothing of it is left.
    NotStarted { exit: u8 },
    /// The command itself has ended, with this exit status.
    Ended { exit: u8 },
    /// The children were looked for.
    Children { left: bool },
    /// Another caller has ended the lock.
    Forced,
    /// The lock process has ended.
    Died,
    /// The release was answered.
    Released { confirmed: bool },
    /// A signal. It may have reached the command, too: the keyboard's do, in the foreground.
    Signal { number: i32, has_reached_command: bool },
    /// Time has passed.
    Woken,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Prepare the command: everything but its start.
    Prepare,
    /// Let the prepared command run.
    Start,
    /// Kill the prepared command, which has not started, and wait for its end.
    Withdraw,
    /// Ask the command to end, because of the lock.
    Terminate(Reason),
    /// Hand a signal on to the command.
    Forward { number: i32 },
    /// Kill every child that was not killed yet.
    Kill,
    /// Nothing is left: have the lock released, and the wait ended.
    Release,
    /// Nothing is left: have the lock released, and wait for it again.
    ReleaseAndWait,
    /// Say this to the user.
    Say(Note),
    /// End with this status.
    Exit(u8),
}

/// Why the command is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The lock was not renewed.
    NotRenewed,
    /// Another caller has ended the lock.
    Forced,
    /// It was held for as long as it may be.
    MaxHold,
}

/// What is said to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// The command has ended, and its descendants run on.
    WaitingForDescendants,
    /// These were killed, and run on.
    Survivors,
    /// The grant came so late that the command was not started.
    TooLate,
    /// The lock process has ended, and nobody renews the lock.
    LockProcessDied,
    /// The command has ended, and somebody else had ended the lock before.
    WasForced,
    /// The lock was not released, and ends with its TTL.
    NotReleased,
}

/// The state of the supervisor.
#[derive(Debug)]
pub(crate) struct Machine {
    rules: Rules,
    state: State,
    /// Whether the lock process has ended.
    is_alone: bool,
}

#[derive(Debug)]
enum State {
    Waiting,
    Ready {
        ttl: Duration,
        since: BootTime,
        forced: bool,
    },
    Runs(Run),
    Releasing {
        exit: u8,
        since: BootTime,
        /// Whether the command ran.
        ran: bool,
    },
    Over,
}

/// A command that was started.
#[derive(Debug)]
struct Run {
    ttl: Duration,
    held_since: BootTime,
    ended: Option<Ended>,
    /// Whether anything of it was there when it was last looked for.
    left: bool,
    /// When it is killed. It was asked to end before, which is final.
    kill_at: Option<BootTime>,
    killed_since: Option<BootTime>,
}

/// The end of the command itself.
#[derive(Debug)]
struct Ended {
    exit: u8,
    at: BootTime,
    are_descendants_named: bool,
}

impl Machine {
    pub(crate) fn new(rules: Rules) -> Self {
        Self { rules, state: State::Waiting, is_alone: false }
    }

    /// What to do at `now`, when this has happened. `deadline` is the newest safe deadline.
    pub(crate) fn on(
        &mut self,
        now: BootTime,
        deadline: BootTime,
        event: Event,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        self.happened(now, deadline, event, &mut actions);
        self.due(now, deadline, &mut actions);
        actions
    }

    /// When something comes due, unless the deadline moves.
    pub(crate) fn wakes_at(&self, now: BootTime, deadline: BootTime) -> Option<BootTime> {
        match &self.state {
            State::Waiting | State::Ready { .. } | State::Over => None,
            State::Releasing { since, .. } => Some(*since + RELEASE_WITHIN),
            State::Runs(run) => Some(run.wakes_at(&self.rules, now, deadline)),
        }
    }

    fn happened(
        &mut self,
        now: BootTime,
        deadline: BootTime,
        event: Event,
        actions: &mut Vec<Action>,
    ) {
        match (&mut self.state, event) {
            (State::Over, _) | (_, Event::Woken) => {}
            (_, Event::Died) => self.died(actions),
            (State::Waiting, Event::Granted { ttl }) => {
                self.state = State::Ready { ttl, since: now, forced: false };
                actions.push(Action::Prepare);
            }
            (State::Waiting, Event::Refused { exit }) => self.exit(exit, actions),
            (State::Waiting, Event::Signal { number, .. }) => {
                self.release(now, exit::of_signal(number), false, actions);
            }
            (State::Ready { .. }, Event::Signal { number, .. }) => {
                actions.push(Action::Withdraw);
                self.release(now, exit::of_signal(number), false, actions);
            }
            (State::Ready { forced, .. }, Event::Forced) => *forced = true,
            (State::Ready { ttl, since, forced }, Event::Ready) => {
                let (ttl, held_since, forced) = (*ttl, *since, *forced);
                let run = Run::new(ttl, held_since);
                if forced || now >= run.term_at(&self.rules, deadline) {
                    let say = Action::Say(Note::TooLate);
                    actions.extend([Action::Withdraw, say, Action::ReleaseAndWait]);
                    self.state = State::Waiting;
                } else {
                    actions.push(Action::Start);
                    self.state = State::Runs(run);
                }
            }
            (State::Ready { .. }, Event::NotStarted { exit }) => {
                self.release(now, exit, false, actions);
            }
            (State::Runs(_), Event::Signal { number, has_reached_command: false }) => {
                actions.push(Action::Forward { number });
            }
            (State::Runs(run), Event::Forced) => {
                if run.kill_at.is_none() {
                    actions.push(Action::Terminate(Reason::Forced));
                }
                let kill_at = now + FORCED_GRACE;
                run.kill_at = Some(run.kill_at.map_or(kill_at, |at| at.min(kill_at)));
            }
            (State::Runs(run), Event::Ended { exit }) => {
                run.ended.get_or_insert(Ended { exit, at: now, are_descendants_named: false });
            }
            (State::Runs(run), Event::Children { left }) => run.left = left,
            // If the command was ended because of that, it was said before.
            (State::Releasing { exit, ran: true, .. }, Event::Forced)
                if *exit != exit::LOST =>
            {
                *exit = exit::LOST;
                actions.push(Action::Say(Note::WasForced));
            }
            // The try had failed before the signal came, so there is no lock to release.
            (State::Releasing { exit, .. }, Event::Refused { .. }) => {
                let exit = *exit;
                self.exit(exit, actions);
            }
            (State::Releasing { exit, .. }, Event::Released { confirmed }) => {
                let exit = *exit;
                if !confirmed {
                    actions.push(Action::Say(Note::NotReleased));
                }
                self.exit(exit, actions);
            }
            // Of an earlier state, or of a lock process that does not keep to the protocol.
            _ => {}
        }
    }

    fn died(&mut self, actions: &mut Vec<Action>) {
        self.is_alone = true;
        match &self.state {
            State::Waiting => {
                actions.push(Action::Say(Note::LockProcessDied));
                self.exit(exit::DEFECT, actions);
            }
            State::Ready { .. } => {
                actions.extend([Action::Withdraw, Action::Say(Note::LockProcessDied)]);
                self.exit(exit::DEFECT, actions);
            }
            State::Runs(_) => actions.push(Action::Say(Note::LockProcessDied)),
            State::Releasing { exit, .. } => {
                let exit = *exit;
                actions.push(Action::Say(Note::NotReleased));
                self.exit(exit, actions);
            }
            State::Over => {}
        }
    }

    fn due(&mut self, now: BootTime, deadline: BootTime, actions: &mut Vec<Action>) {
        if let State::Releasing { exit, since, .. } = self.state
            && now >= since + RELEASE_WITHIN
        {
            actions.push(Action::Say(Note::NotReleased));
            self.exit(exit, actions);
            return;
        }
        let State::Runs(run) = &mut self.state else { return };
        if let Some(exit) = run.result(&self.rules, now, deadline) {
            self.release(now, exit, true, actions);
            return;
        }
        run.enforce(&self.rules, now, deadline, actions);
        if run.killed_since.is_some_and(|since| now >= since + SURVIVES_MAX) {
            actions.push(Action::Say(Note::Survivors));
            self.exit(exit::LOST, actions);
        }
    }

    /// Nothing is left.
    fn release(&mut self, now: BootTime, exit: u8, ran: bool, actions: &mut Vec<Action>) {
        if self.is_alone {
            actions.push(Action::Say(Note::NotReleased));
            self.exit(exit, actions);
            return;
        }
        actions.push(Action::Release);
        self.state = State::Releasing { exit, since: now, ran };
    }

    fn exit(&mut self, exit: u8, actions: &mut Vec<Action>) {
        actions.push(Action::Exit(exit));
        self.state = State::Over;
    }
}

impl Run {
    fn new(ttl: Duration, held_since: BootTime) -> Self {
        Self { ttl, held_since, ended: None, left: true, kill_at: None, killed_since: None }
    }

    /// When the command is asked to end: at the latest when it is killed.
    fn term_at(&self, rules: &Rules, deadline: BootTime) -> BootTime {
        let term_before = rules.term_before.min(self.ttl / TERM_PART);
        deadline - term_before.max(self.kill_before())
    }

    /// How long before the safe deadline it is killed.
    fn kill_before(&self) -> Duration {
        KILL_BEFORE_MAX.min(self.ttl / KILL_PART)
    }

    fn max_hold_ends(&self, rules: &Rules) -> Option<BootTime> {
        rules.max_hold.map(|max_hold| self.held_since + max_hold)
    }

    /// The exit status, if nothing is left.
    fn result(&self, rules: &Rules, now: BootTime, deadline: BootTime) -> Option<u8> {
        let ended = self.ended.as_ref()?;
        if self.left && !rules.leave_daemons {
            return None;
        }
        let is_lost = self.kill_at.is_some() || now > deadline;
        Some(if is_lost { exit::LOST } else { ended.exit })
    }

    fn enforce(
        &mut self,
        rules: &Rules,
        now: BootTime,
        deadline: BootTime,
        actions: &mut Vec<Action>,
    ) {
        let kill_before = self.kill_before();
        if self.kill_at.is_none() {
            if now >= self.term_at(rules, deadline) {
                self.kill_at = Some(deadline - kill_before);
                actions.push(Action::Terminate(Reason::NotRenewed));
            } else if self.max_hold_ends(rules).is_some_and(|at| now >= at) {
                let grace = rules.term_before.min(self.ttl / TERM_PART);
                self.kill_at = Some((now + grace).min(deadline - kill_before));
                actions.push(Action::Terminate(Reason::MaxHold));
            }
        }
        if self.kill_at.is_some_and(|at| now >= at) {
            self.killed_since.get_or_insert(now);
            actions.push(Action::Kill);
            return;
        }
        if let Some(ended) = &mut self.ended
            && !ended.are_descendants_named
            && now >= ended.at + NAME_AFTER
        {
            ended.are_descendants_named = true;
            actions.push(Action::Say(Note::WaitingForDescendants));
        }
    }

    fn wakes_at(&self, rules: &Rules, now: BootTime, deadline: BootTime) -> BootTime {
        if let Some(since) = self.killed_since {
            return (now + ROUND).min(since + SURVIVES_MAX);
        }
        let ends = self.kill_at.unwrap_or_else(|| {
            let term_at = self.term_at(rules, deadline);
            self.max_hold_ends(rules).map_or(term_at, |at| at.min(term_at))
        });
        let names = self.ended.as_ref().filter(|ended| !ended.are_descendants_named);
        names.map_or(ends, |ended| ends.min(ended.at + NAME_AFTER))
    }
}
