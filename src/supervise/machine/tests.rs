//! Each rule by itself.

use super::*;

const TTL: Duration = Duration::from_secs(30);
const START: BootTime = BootTime(1_000_000_000_000);

fn seconds(seconds: f64) -> BootTime {
    START + Duration::from_secs_f64(seconds)
}

/// A machine, the moment, and the newest deadline.
struct Setup {
    machine: Machine,
    now: BootTime,
    deadline: BootTime,
}

const RULES: Rules =
    Rules { term_before: Duration::from_secs(5), max_hold: None, leave_daemons: false };

impl Setup {
    fn new(rules: Rules) -> Self {
        Self { machine: Machine::new(rules), now: START, deadline: BootTime(0) }
    }

    /// A command that runs since the start; its lock is good for 28 s.
    fn running(rules: Rules) -> Self {
        let mut setup = Self::new(rules);
        setup.deadline = seconds(28.0);
        assert_eq!(setup.on(Event::Granted { ttl: TTL }), [Action::Prepare]);
        assert_eq!(setup.on(Event::Ready), [Action::Start]);
        setup
    }

    fn on(&mut self, event: Event) -> Vec<Action> {
        self.machine.on(self.now, self.deadline, event)
    }

    fn at(&mut self, at: f64, event: Event) -> Vec<Action> {
        self.now = seconds(at);
        self.on(event)
    }

    fn wakes_at(&self) -> Option<BootTime> {
        self.machine.wakes_at(self.now, self.deadline)
    }
}

const TERM: Event = Event::Signal { number: 15, has_reached_command: false };

#[test]
fn the_exit_status_is_the_commands_and_comes_after_the_release() {
    let mut setup = Setup::running(RULES);
    assert_eq!(setup.at(1.0, Event::Ended { exit: 3 }), []);
    assert_eq!(setup.on(Event::Children { left: false }), [Action::Release]);
    assert_eq!(setup.on(Event::Released { confirmed: true }), [Action::Exit(3)]);
}

#[test]
fn the_lock_is_released_when_the_last_descendant_has_ended() {
    let mut setup = Setup::running(RULES);
    setup.at(1.0, Event::Ended { exit: 0 });
    assert_eq!(setup.at(2.0, Event::Children { left: true }), []);
    assert_eq!(setup.wakes_at(), Some(seconds(11.0)));
    let named = [Action::Say(Note::WaitingForDescendants)];
    assert_eq!(setup.at(11.0, Event::Woken), named);
    assert_eq!(setup.at(12.0, Event::Woken), []);
    assert_eq!(setup.at(13.0, Event::Children { left: false }), [Action::Release]);
}

#[test]
fn daemons_are_left_if_asked_for() {
    let mut setup = Setup::running(Rules { leave_daemons: true, ..RULES });
    assert_eq!(setup.at(1.0, Event::Children { left: true }), []);
    assert_eq!(setup.at(2.0, Event::Ended { exit: 0 }), [Action::Release]);
}

#[test]
fn a_refusal_is_the_exit_status() {
    let mut setup = Setup::new(RULES);
    assert_eq!(setup.on(Event::Refused { exit: 75 }), [Action::Exit(75)]);
}

#[test]
fn a_signal_ends_the_wait() {
    let mut setup = Setup::new(RULES);
    assert_eq!(setup.on(TERM), [Action::Release]);
    assert_eq!(setup.on(Event::Granted { ttl: TTL }), []);
    assert_eq!(setup.on(Event::Released { confirmed: true }), [Action::Exit(143)]);
}

#[test]
fn a_signal_withdraws_a_command_that_has_not_started() {
    let mut setup = Setup::new(RULES);
    setup.deadline = seconds(28.0);
    setup.on(Event::Granted { ttl: TTL });
    assert_eq!(setup.on(TERM), [Action::Withdraw, Action::Release]);
    assert_eq!(setup.on(Event::Released { confirmed: true }), [Action::Exit(143)]);
}

#[test]
fn a_signal_is_handed_on_unless_the_keyboard_has_sent_it_to_the_command_too() {
    let mut setup = Setup::running(RULES);
    assert_eq!(setup.on(TERM), [Action::Forward { number: 15 }]);
    let keyboard = Event::Signal { number: 2, has_reached_command: true };
    assert_eq!(setup.on(keyboard), []);
    setup.at(1.0, Event::Ended { exit: 143 });
    assert_eq!(setup.on(Event::Children { left: false }), [Action::Release]);
    assert_eq!(setup.on(Event::Released { confirmed: true }), [Action::Exit(143)]);
}

#[test]
fn a_command_whose_grant_came_too_late_is_not_started() {
    for (at, event) in [(23.0, Event::Woken), (1.0, Event::Forced)] {
        let mut setup = Setup::new(RULES);
        setup.deadline = seconds(28.0);
        setup.on(Event::Granted { ttl: TTL });
        setup.on(event);
        let again = [Action::Withdraw, Action::Say(Note::TooLate), Action::ReleaseAndWait];
        assert_eq!(setup.at(at, Event::Ready), again);
        setup.deadline = seconds(60.0);
        assert_eq!(setup.at(31.0, Event::Granted { ttl: TTL }), [Action::Prepare]);
        assert_eq!(setup.on(Event::Ready), [Action::Start]);
    }
}

#[test]
fn a_command_that_could_not_be_started_releases_the_lock() {
    let mut setup = Setup::new(RULES);
    setup.deadline = seconds(28.0);
    setup.on(Event::Granted { ttl: TTL });
    assert_eq!(setup.on(Event::NotStarted { exit: 126 }), [Action::Release]);
    assert_eq!(setup.on(Event::Released { confirmed: true }), [Action::Exit(126)]);
}

#[test]
fn term_is_sent_before_the_safe_deadline_and_kill_at_it() {
    let mut setup = Setup::running(RULES);
    assert_eq!(setup.wakes_at(), Some(seconds(23.0)));
    assert_eq!(setup.at(22.9, Event::Woken), []);
    let term = [Action::Terminate(Reason::NotRenewed)];
    assert_eq!(setup.at(23.0, Event::Woken), term);
    assert_eq!(setup.wakes_at(), Some(seconds(27.9)));
    assert_eq!(setup.at(27.8, Event::Woken), []);
    assert_eq!(setup.at(27.9, Event::Woken), [Action::Kill]);
    assert_eq!(setup.at(27.91, Event::Children { left: true }), [Action::Kill]);
    setup.at(27.92, Event::Ended { exit: 137 });
    assert_eq!(setup.on(Event::Children { left: false }), [Action::Release]);
    assert_eq!(setup.on(Event::Released { confirmed: true }), [Action::Exit(exit::LOST)]);
}

/// KILL once came with TERM at the safe deadline, when others may soon have the lock.
#[test]
fn without_time_for_term_the_command_is_killed_before_the_safe_deadline() {
    let mut setup = Setup::running(Rules { term_before: Duration::ZERO, ..RULES });
    assert_eq!(setup.wakes_at(), Some(seconds(27.9)));
    let term = Action::Terminate(Reason::NotRenewed);
    assert_eq!(setup.at(27.9, Event::Woken), [term, Action::Kill]);
}

#[test]
fn a_renewal_moves_term_and_does_not_take_it_back() {
    let mut setup = Setup::running(RULES);
    setup.deadline = seconds(38.0);
    assert_eq!(setup.at(23.0, Event::Woken), []);
    assert_eq!(setup.at(33.0, Event::Woken), [Action::Terminate(Reason::NotRenewed)]);
    setup.deadline = seconds(60.0);
    assert_eq!(setup.at(37.9, Event::Woken), [Action::Kill]);
}

#[test]
fn a_command_that_ends_after_term_was_ended_by_the_lock_whatever_its_status() {
    let mut setup = Setup::running(RULES);
    setup.at(23.0, Event::Woken);
    setup.at(24.0, Event::Ended { exit: 0 });
    assert_eq!(setup.on(Event::Children { left: false }), [Action::Release]);
    assert_eq!(setup.on(Event::Released { confirmed: true }), [Action::Exit(exit::LOST)]);
}

#[test]
fn a_short_ttl_leaves_less_time_before_the_deadline() {
    let mut setup = Setup::new(RULES);
    setup.deadline = seconds(1.0);
    let ttl = Duration::from_millis(1_200);
    setup.on(Event::Granted { ttl });
    setup.on(Event::Ready);
    assert_eq!(setup.wakes_at(), Some(seconds(0.6)));
    setup.at(0.6, Event::Woken);
    assert_eq!(setup.wakes_at(), Some(seconds(0.94)));
}

#[test]
fn what_wakes_after_both_moments_kills_at_once() {
    let mut setup = Setup::running(RULES);
    let both = [Action::Terminate(Reason::NotRenewed), Action::Kill];
    assert_eq!(setup.at(100.0, Event::Woken), both);
}

#[test]
fn a_command_that_ended_after_the_deadline_has_lost_its_lock() {
    let mut setup = Setup::running(RULES);
    setup.now = seconds(28.1);
    let actions = setup.on(Event::Ended { exit: 0 });
    assert!(actions.contains(&Action::Kill), "{actions:?}");
    assert_eq!(setup.on(Event::Children { left: false }), [Action::Release]);
    assert_eq!(setup.on(Event::Released { confirmed: true }), [Action::Exit(exit::LOST)]);
}

#[test]
fn somebody_elses_force_leaves_a_second() {
    let mut setup = Setup::running(RULES);
    assert_eq!(setup.at(3.0, Event::Forced), [Action::Terminate(Reason::Forced)]);
    assert_eq!(setup.wakes_at(), Some(seconds(4.0)));
    assert_eq!(setup.at(4.0, Event::Woken), [Action::Kill]);
}

#[test]
fn a_force_after_term_brings_kill_forward_and_never_puts_it_off() {
    let mut setup = Setup::running(RULES);
    setup.at(23.0, Event::Woken);
    assert_eq!(setup.at(24.0, Event::Forced), []);
    assert_eq!(setup.wakes_at(), Some(seconds(25.0)));
    let mut setup = Setup::running(RULES);
    setup.at(23.0, Event::Woken);
    setup.at(27.5, Event::Forced);
    assert_eq!(setup.wakes_at(), Some(seconds(27.9)));
}

#[test]
fn the_longest_hold_ends_the_command_while_the_lock_is_renewed() {
    let max_hold = Some(Duration::from_secs(100));
    let mut setup = Setup::running(Rules { max_hold, ..RULES });
    setup.deadline = seconds(120.0);
    assert_eq!(setup.at(99.9, Event::Woken), []);
    assert_eq!(setup.wakes_at(), Some(seconds(100.0)));
    assert_eq!(setup.at(100.0, Event::Woken), [Action::Terminate(Reason::MaxHold)]);
    setup.deadline = seconds(130.0);
    assert_eq!(setup.at(105.0, Event::Woken), [Action::Kill]);
    setup.on(Event::Ended { exit: 137 });
    assert_eq!(setup.on(Event::Children { left: false }), [Action::Release]);
}

#[test]
fn what_survives_kill_is_named_and_the_lock_is_not_released() {
    let mut setup = Setup::running(RULES);
    setup.at(27.9, Event::Woken);
    assert_eq!(setup.at(37.8, Event::Woken), [Action::Kill]);
    let named = [Action::Kill, Action::Say(Note::Survivors), Action::Exit(exit::LOST)];
    assert_eq!(setup.at(37.9, Event::Woken), named);
}

#[test]
fn a_command_outlives_the_lock_process_until_the_deadline() {
    let mut setup = Setup::running(RULES);
    assert_eq!(setup.at(1.0, Event::Died), [Action::Say(Note::LockProcessDied)]);
    assert_eq!(setup.at(23.0, Event::Woken), [Action::Terminate(Reason::NotRenewed)]);
    setup.at(24.0, Event::Ended { exit: 143 });
    let unreleased = [Action::Say(Note::NotReleased), Action::Exit(exit::LOST)];
    assert_eq!(setup.on(Event::Children { left: false }), unreleased);
}

#[test]
fn a_command_that_ends_without_the_lock_process_keeps_its_status() {
    let mut setup = Setup::running(RULES);
    setup.at(1.0, Event::Died);
    setup.at(2.0, Event::Ended { exit: 7 });
    let unreleased = [Action::Say(Note::NotReleased), Action::Exit(7)];
    assert_eq!(setup.on(Event::Children { left: false }), unreleased);
}

#[test]
fn without_the_lock_process_nothing_is_started() {
    let mut setup = Setup::new(RULES);
    let defect = [Action::Say(Note::LockProcessDied), Action::Exit(exit::DEFECT)];
    assert_eq!(setup.on(Event::Died), defect);
    let mut setup = Setup::new(RULES);
    setup.on(Event::Granted { ttl: TTL });
    assert_eq!(setup.on(Event::Died)[0], Action::Withdraw);
}

#[test]
fn a_release_that_fails_is_a_warning() {
    for event in [Event::Released { confirmed: false }, Event::Died, Event::Woken] {
        let mut setup = Setup::running(RULES);
        setup.at(1.0, Event::Ended { exit: 0 });
        setup.on(Event::Children { left: false });
        assert_eq!(setup.wakes_at(), Some(seconds(6.0)));
        let unreleased = [Action::Say(Note::NotReleased), Action::Exit(0)];
        assert_eq!(setup.at(6.0, event), unreleased);
    }
}

/// The status was 0 for a command that had run longer than its lock.
#[test]
fn a_force_that_is_noticed_at_the_release_is_the_exit_status() {
    let mut setup = Setup::running(RULES);
    setup.at(5.0, Event::Ended { exit: 0 });
    assert_eq!(setup.on(Event::Children { left: false }), [Action::Release]);
    assert_eq!(setup.on(Event::Forced), [Action::Say(Note::WasForced)]);
    assert_eq!(setup.on(Event::Released { confirmed: true }), [Action::Exit(exit::LOST)]);
}

#[test]
fn a_force_that_ended_the_command_is_reported_once() {
    let mut setup = Setup::running(RULES);
    assert_eq!(setup.at(3.0, Event::Forced), [Action::Terminate(Reason::Forced)]);
    setup.at(3.5, Event::Ended { exit: 143 });
    assert_eq!(setup.on(Event::Children { left: false }), [Action::Release]);
    assert_eq!(setup.on(Event::Forced), []);
    assert_eq!(setup.on(Event::Released { confirmed: true }), [Action::Exit(exit::LOST)]);
}

#[test]
fn a_signal_before_the_command_ran_is_the_exit_status_whatever_became_of_the_lock() {
    let mut setup = Setup::new(RULES);
    setup.on(Event::Granted { ttl: TTL });
    let signal = Event::Signal { number: 15, has_reached_command: false };
    assert_eq!(setup.on(signal), [Action::Withdraw, Action::Release]);
    assert_eq!(setup.on(Event::Forced), []);
    assert_eq!(setup.on(Event::Released { confirmed: true }), [Action::Exit(143)]);
}

#[test]
fn a_refusal_that_crosses_a_signal_ends_the_release() {
    let mut setup = Setup::new(RULES);
    let signal = Event::Signal { number: 15, has_reached_command: false };
    assert_eq!(setup.on(signal), [Action::Release]);
    assert_eq!(setup.on(Event::Refused { exit: 69 }), [Action::Exit(143)]);
}
