//! Random worlds: a command with descendants, a lock process that renews or does not, a
//! supervisor that is stopped now and then, and signals.

use super::*;

/// A process of the command.
struct Process {
    ends_at: u64,
    heeds_term: bool,
    /// Not even KILL ends it.
    is_stuck: bool,
    /// What it leaves behind when it ends.
    children: Vec<Process>,
}

struct World {
    seed: u64,
    now: BootTime,
    deadline: BootTime,
    ttl: Duration,
    machine: Machine,
    rules: Rules,
    /// The children of the supervisor: the command first.
    family: Vec<Process>,
    command_exit: Option<u8>,
    is_prepared: bool,
    is_started: bool,
    renews: bool,
    lives: bool,
    was_released: bool,
    is_lost: bool,
    exit: Option<u8>,
}

const MS: Duration = Duration::from_millis(1);
const FOREVER: u64 = u64::MAX;

fn process(now: BootTime, depth: u32) -> Process {
    let lasts = match fastrand::u32(..4) {
        0 => None,
        1 => Some(fastrand::u64(..100)),
        _ => Some(fastrand::u64(..20_000)),
    };
    let children = if depth == 0 { 0 } else { fastrand::usize(..3) };
    Process {
        ends_at: lasts.map_or(FOREVER, |ms| (now + MS * ms as u32).0),
        heeds_term: fastrand::bool(),
        is_stuck: fastrand::u32(..200) == 0,
        children: (0..children).map(|_| process(now, depth - 1)).collect(),
    }
}

impl World {
    fn new(seed: u64) -> Self {
        fastrand::seed(seed);
        let rules = Rules {
            term_before: MS * fastrand::u32(..8_000),
            max_hold: fastrand::bool().then(|| MS * fastrand::u32(1..20_000)),
            leave_daemons: fastrand::u32(..4) == 0,
        };
        Self {
            seed,
            now: BootTime(1_000_000_000_000),
            deadline: BootTime(0),
            ttl: MS * fastrand::u32(100..15_000),
            machine: Machine::new(rules),
            rules,
            family: Vec::new(),
            command_exit: None,
            is_prepared: false,
            is_started: false,
            renews: true,
            lives: true,
            was_released: false,
            is_lost: false,
            exit: None,
        }
    }

    fn happens(&mut self, event: Event) {
        for action in self.machine.on(self.now, self.deadline, event) {
            self.does(action);
        }
    }

    fn does(&mut self, action: Action) {
        let kind = format!("seed {} at {:?}: {action:?}", self.seed, self.now);
        match action {
            Action::Prepare => {
                assert!(self.family.is_empty() && !self.is_started, "{kind}");
                self.is_prepared = true;
            }
            Action::Start => {
                assert!(self.is_prepared && self.now < self.deadline, "{kind}");
                self.family.push(process(self.now, 3));
                (self.is_prepared, self.is_started) = (false, true);
            }
            Action::Withdraw => self.is_prepared = false,
            Action::Terminate(_) => {
                self.is_lost = true;
                self.term();
            }
            Action::Forward { .. } => self.term(),
            Action::Kill => {
                let now = self.now.0;
                for process in self.family.iter_mut().filter(|process| !process.is_stuck) {
                    process.ends_at = now;
                }
            }
            Action::Release | Action::ReleaseAndWait => {
                assert!(!self.is_prepared, "{kind}");
                let done = if self.rules.leave_daemons && self.is_started {
                    self.command_exit.is_some()
                } else {
                    self.family.is_empty()
                };
                assert!(done, "{kind}");
                self.deadline = BootTime(0);
                self.was_released = action == Action::Release;
            }
            Action::Say(_) => {}
            Action::Exit(exit) => {
                assert!(self.exit.replace(exit).is_none(), "{kind}");
            }
        }
    }

    fn term(&mut self) {
        let now = self.now.0;
        // Only the processes of the first generation are in the group of this command.
        for process in self.family.iter_mut().filter(|process| process.heeds_term) {
            process.ends_at = process.ends_at.min(now + 1_000_000);
        }
    }

    /// Processes end, and their children become the supervisor's.
    fn run_processes(&mut self) {
        loop {
            let now = self.now.0;
            let Some(at) = self.family.iter().position(|process| process.ends_at <= now) else {
                break;
            };
            let ended = self.family.remove(at);
            self.family.extend(ended.children);
            if at == 0 && self.command_exit.is_none() {
                self.command_exit = Some(0);
            }
        }
    }

    fn step(&mut self) {
        if self.renews && self.lives && self.is_started && !self.was_released {
            self.deadline = self.deadline.max(self.now + self.ttl - self.ttl / 20);
        }
        self.run_processes();
        if self.is_started
            && let Some(exit) = self.command_exit
        {
            self.happens(Event::Ended { exit });
        }
        if self.is_started {
            self.happens(Event::Children { left: !self.family.is_empty() });
        }
        if self.is_prepared && fastrand::bool() {
            self.happens(Event::Ready);
        }
        match fastrand::u32(..2_000) {
            0 => self.renews = !self.renews,
            1 if self.lives => {
                self.lives = false;
                self.happens(Event::Died);
            }
            2 => self.happens(Event::Forced),
            3 => self.happens(Event::Signal { number: 15, has_reached_command: false }),
            _ => {}
        }
        if self.was_released && self.lives && fastrand::u32(..10) == 0 {
            self.happens(Event::Released { confirmed: fastrand::bool() });
        } else if !self.is_started && !self.was_released && !self.is_prepared && self.lives {
            match fastrand::u32(..10) {
                0 => self.happens(Event::Refused { exit: 75 }),
                1..4 => {
                    self.deadline = self.now + self.ttl - self.ttl / 20;
                    self.happens(Event::Granted { ttl: self.ttl });
                }
                _ => {}
            }
        }
        self.happens(Event::Woken);
    }

    /// The time until the supervisor does something again: when it asked to be woken, when a
    /// process ends, or later, because it was stopped.
    fn next(&self) -> BootTime {
        let mut next = self.now + MS * fastrand::u32(1..50);
        let ends = self.family.iter().map(|process| BootTime(process.ends_at));
        for at in self.machine.wakes_at(self.now, self.deadline).into_iter().chain(ends) {
            if at > self.now {
                next = next.min(at);
            }
        }
        if fastrand::u32(..500) == 0 {
            next = next + MS * fastrand::u32(..20_000);
        }
        next
    }

    fn run(&mut self) -> u32 {
        let mut frozen = 0;
        for _ in 0..200_000 {
            self.step();
            if self.exit.is_some() {
                break;
            }
            let next = self.next();
            let is_frozen = next > self.now + MS * 50;
            frozen += u32::from(is_frozen);
            self.now = next;
            self.run_processes();
            // Who was not stopped has killed everything in time.
            let left = self.family.iter().filter(|process| !process.is_stuck).count();
            let is_daemon = self.rules.leave_daemons && self.command_exit.is_some();
            if self.is_started && !is_frozen && !is_daemon && self.now > self.deadline {
                self.happens(Event::Children { left: !self.family.is_empty() });
                let asked = self
                    .family
                    .iter()
                    .all(|process| process.is_stuck || process.ends_at <= self.now.0);
                assert!(asked || self.exit.is_some(), "seed {}: {left} run on", self.seed);
            }
        }
        let exit = self.exit.unwrap_or_else(|| panic!("seed {} does not end", self.seed));
        if self.is_lost {
            assert_eq!(exit, exit::LOST, "seed {}", self.seed);
        } else {
            assert!([0, 70, 75, 79, 143].contains(&exit), "seed {}: {exit}", self.seed);
        }
        frozen
    }
}

#[test]
fn no_command_outlives_its_deadline_and_nothing_is_released_while_something_runs() {
    let seeds = std::env::var("LEASEHOLD_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let (mut frozen, mut lost, mut ended) = (0, 0, 0);
    let seeds = seeds.unwrap_or(2_000);
    for seed in 0..seeds {
        let mut world = World::new(seed);
        frozen += world.run();
        lost += u32::from(world.is_lost);
        ended += u32::from(world.command_exit.is_some());
    }
    println!(
        "{seeds} worlds: {ended} commands ended, {lost} of them by the lock; {frozen} stops"
    );
    assert!(lost > 0 && ended > lost && frozen > 0);
}
