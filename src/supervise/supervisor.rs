//! The process that the caller started: the parent of the command, and of all that the command
//! leaves behind.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    process::Command,
    thread,
    time::Duration,
};

use leasehold_util::exit;
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    pipe::{PipeFlags, pipe_with},
    process::{
        DumpableBehavior, Pid, Signal, getpid, set_child_subreaper, set_dumpable_behavior,
    },
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};

use crate::{
    BootTime, LockOptions, Report, Word,
    deadline::SharedDeadline,
    family::Family,
    look_up,
    machine::{Action, Event, Machine, Note},
    processes,
    protocol::{Lines, Pipe},
    running::{Running, THIS_PROGRAM},
    say::{self, Verbosity},
    signals::Signals,
    terminal, texts,
};

/// How long the lock process may take to end after its work.
const REAP_WITHIN: Duration = Duration::from_millis(500);
const REAP_INTERVAL: Duration = Duration::from_millis(2);
/// How often a stub is looked at until it has become the command.
const PREPARING_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };

/// A command to run under a lock.
#[derive(Debug)]
pub struct Job<'a> {
    /// What the command line says of the lock and of the command.
    pub options: &'a LockOptions,
    /// The name of the store that the command gets.
    pub store: &'a str,
    /// The arguments with which this program becomes the lock process.
    pub lock_process: Vec<OsString>,
}

/// Runs a command under a lock. Must be called by the main thread. Returns the exit status.
#[must_use]
pub fn supervise(job: &Job<'_>) -> u8 {
    let options = job.options;
    if let Some(program) = options.command.first()
        && let Err(unusable) = look_up::check(program)
    {
        if !options.quiet {
            say::line(&unusable.to_string());
        }
        return unusable.exit();
    }
    match Supervisor::start(job) {
        Ok(supervisor) => supervisor.run(),
        Err(error) => {
            say::line(&format!("cannot start: {error}"));
            exit::DEFECT
        }
    }
}

struct Supervisor<'a> {
    job: &'a Job<'a>,
    machine: Machine,
    family: Family,
    signals: Signals,
    timer: OwnedFd,
    deadline: SharedDeadline,
    words: File,
    /// Until the lock process has ended.
    reports: Option<File>,
    lines: Lines,
    command: Option<Running>,
    token: Option<u64>,
}

impl<'a> Supervisor<'a> {
    fn start(job: &'a Job<'a>) -> io::Result<Self> {
        if fs::read_link("/proc/self")?.to_str() != Some(&getpid().to_string()) {
            return Err(io::Error::other(
                "/proc is that of another PID namespace; mount one here (unshare --mount-proc)",
            ));
        }
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        set_child_subreaper(Some(getpid()))?;
        let others = processes::children(getpid())?;
        let signals = Signals::listen()?;
        let timer = timerfd_create(
            TimerfdClockId::Boottime,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let deadline = SharedDeadline::new()?;
        let (words_end, words) = pipe_with(PipeFlags::CLOEXEC)?;
        let (reports, reports_end) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfl(&words, fcntl_getfl(&words)? | OFlags::NONBLOCK)?;
        fcntl_setfl(&reports, fcntl_getfl(&reports)? | OFlags::NONBLOCK)?;
        let lock_process = Command::new(THIS_PROGRAM)
            .args(&job.lock_process)
            .stdin(deadline.as_fd().try_clone_to_owned()?)
            .stdout(words_end)
            .stderr(reports_end)
            .spawn()?;
        let lock_process = Pid::from_child(&lock_process);
        Ok(Self {
            machine: Machine::new(job.options.rules()),
            family: Family::new(lock_process, others),
            signals,
            timer,
            deadline,
            words: words.into(),
            reports: Some(reports.into()),
            lines: Lines::default(),
            command: None,
            token: None,
            job,
        })
    }

    fn run(mut self) -> u8 {
        self.say(Verbosity::Verbose, || {
            let verb =
                if self.job.options.tries_once() { "trying to get" } else { "waiting for" };
            format!("{verb} the lock {}", self.job.options.resource)
        });
        let mut turn = || -> io::Result<Option<u8>> {
            self.sleep()?;
            for event in self.events()? {
                // The clock first: this process may be stopped between the two, and a deadline
                // that is newer than the clock only makes it look again at once.
                let (now, deadline) = (BootTime::now(), self.deadline.read()?);
                if let Some(exit) = self.happens(now, deadline, event)? {
                    return Ok(Some(exit));
                }
            }
            Ok(None)
        };
        loop {
            match turn() {
                Ok(None) => {}
                Ok(Some(exit)) => {
                    self.reap();
                    return exit;
                }
                // The lock process ends the command at the deadline if this process ends.
                Err(error) => {
                    say::line(&format!("the supervisor cannot go on: {error}"));
                    return exit::DEFECT;
                }
            }
        }
    }

    /// Sleeps until something may have happened.
    fn sleep(&self) -> io::Result<()> {
        let (now, deadline) = (BootTime::now(), self.deadline.read()?);
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let wakes_at = self.machine.wakes_at(now, deadline).map_or(never, BootTime::timespec);
        let timer = Itimerspec { it_interval: never, it_value: wakes_at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &timer)?;
        let mut sources = vec![
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(self.signals.source(), PollFlags::IN),
        ];
        if let Some(reports) = &self.reports {
            sources.push(PollFd::new(reports, PollFlags::IN));
        }
        // There is no signal for a child that has stopped: signal-hook asks for none.
        let is_preparing = self.command.as_ref().is_some_and(|command| !command.is_command());
        match poll(&mut sources, is_preparing.then_some(&PREPARING_INTERVAL)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What has happened since.
    fn events(&mut self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        let shares_group = self.command.as_ref().is_some_and(|command| !command.leads_group);
        events.extend(self.signals.take().map(|received| Event::Signal {
            number: received.number,
            has_reached_command: received.by_keyboard && shares_group,
        }));
        // After the signals: one to the group may have ended a lock process that was just begun.
        self.read_reports(&mut events)?;
        let left = self.family.look(self.command.as_ref().map(|command| command.pid))?;
        if let Some(command) = &mut self.command {
            let event = command.look()?;
            if matches!(event, Some(Event::NotStarted { .. })) {
                self.command = None;
            }
            events.extend(event);
        }
        events.extend([Event::Children { left }, Event::Woken]);
        Ok(events)
    }

    fn read_reports(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let Some(reports) = &mut self.reports else { return Ok(()) };
        let mut lines = Vec::new();
        let pipe = self.lines.read(reports, &mut lines)?;
        for line in lines {
            match Report::from(line.as_str()) {
                Report::Granted { token, ttl } => {
                    self.token = token;
                    self.say(Verbosity::Verbose, || {
                        let token = token.map(|token| format!(" with token {token}"));
                        format!("the lock is held{}", token.unwrap_or_default())
                    });
                    events.push(Event::Granted { ttl });
                }
                Report::Refused { exit: exit::NOT_ACQUIRED, why } => {
                    let exit = self.job.options.conflict_exit_code;
                    if exit != 0 {
                        self.say(Verbosity::Normal, || why);
                    }
                    events.push(Event::Refused { exit });
                }
                Report::Refused { exit, why } => {
                    self.say(Verbosity::Normal, || why);
                    events.push(Event::Refused { exit });
                }
                Report::Forced => events.push(Event::Forced),
                Report::Released { confirmed } => events.push(Event::Released { confirmed }),
                Report::Say(text) => self.say(Verbosity::Normal, || text),
                Report::Detail(text) => self.say(Verbosity::Verbose, || text),
            }
        }
        if pipe == Pipe::Closed {
            self.reports = None;
            events.push(Event::Died);
        }
        Ok(())
    }

    /// Acts on an event. Returns the exit status if that is the end.
    fn happens(
        &mut self,
        now: BootTime,
        deadline: BootTime,
        event: Event,
    ) -> io::Result<Option<u8>> {
        // Before a command is started, the time must not be older than the deadline.
        let now = if event == Event::Ready { BootTime::now() } else { now };
        for action in self.machine.on(now, deadline, event) {
            match action {
                Action::Prepare => {
                    if let Err(error) = self.prepare() {
                        self.say(Verbosity::Normal, || format!("cannot start: {error}"));
                        let event = Event::NotStarted { exit: exit::CANNOT_RUN };
                        return self.happens(now, deadline, event);
                    }
                }
                Action::Start => self.let_run()?,
                Action::Withdraw => {
                    if let Some(command) = self.command.take() {
                        command.withdraw();
                    }
                }
                Action::Terminate(reason) => {
                    self.say(Verbosity::Normal, || texts::of_reason(reason).to_owned());
                    self.signal(self.job.options.signal.0, true)?;
                }
                Action::Forward { number } => {
                    if let Some(signal) = Signal::from_named_raw(number) {
                        self.signal(signal, false)?;
                    }
                }
                Action::Kill => {
                    self.family.kill(self.command.as_ref().map(|command| command.pid))?;
                }
                Action::Release => {
                    self.say(Verbosity::Verbose, || "releasing the lock".to_owned());
                    self.word(&Word::Release);
                }
                Action::ReleaseAndWait => self.word(&Word::ReleaseAndWait),
                Action::Say(note) => self.note(note)?,
                Action::Exit(exit) => return Ok(Some(exit)),
            }
        }
        Ok(None)
    }

    /// Waits for the children that have ended, so that none is left as a zombie.
    fn reap(self) {
        if let Some(command) = &self.command {
            processes::reap(command.pid);
        }
        // Without its words the lock process ends, too.
        drop(self.words);
        let until = BootTime::now() + REAP_WITHIN;
        while !processes::reap(self.family.lock_process()) && BootTime::now() < until {
            thread::sleep(REAP_INTERVAL);
        }
    }

    fn prepare(&mut self) -> io::Result<()> {
        let leads_group = !self.job.options.foreground && !terminal::is_in_foreground();
        self.command = Some(Running::prepare(self.job, self.token, leads_group)?);
        Ok(())
    }

    fn let_run(&mut self) -> io::Result<()> {
        let Some(command) = &self.command else { return Ok(()) };
        let (pid, leads_group) = (command.pid, command.leads_group);
        let others = self.family.others();
        // First, so that the lock process can end the command if this process ends.
        self.word(&Word::Starts { command: pid, leads_group, others });
        self.command.as_mut().map_or(Ok(()), Running::start)
    }

    /// Sends a signal to the command, and lets it go on if it was stopped. `to_orphans`: also to
    /// descendants that have left its group.
    fn signal(&self, signal: Signal, to_orphans: bool) -> io::Result<()> {
        let Some(command) = &self.command else { return Ok(()) };
        self.family.signal(command.pid, command.leads_group, signal, to_orphans)
    }

    /// Sends a word to the lock process. If it has died, its pipe says so.
    fn word(&mut self, word: &Word) {
        let _ = self.words.write_all(format!("{word}\n").as_bytes());
    }

    fn note(&self, note: Note) -> io::Result<()> {
        let left = match note {
            Note::WaitingForDescendants | Note::Survivors => {
                self.family.left(self.command.as_ref().map(|command| command.pid))?
            }
            _ => Vec::new(),
        };
        let left = left.into_iter().map(processes::name).collect::<Vec<_>>().join(", ");
        self.say(Verbosity::Normal, || texts::of_note(note, &left));
        Ok(())
    }

    fn say(&self, from: Verbosity, text: impl FnOnce() -> String) {
        if self.job.options.verbosity() >= from {
            say::line(&text());
        }
    }
}
