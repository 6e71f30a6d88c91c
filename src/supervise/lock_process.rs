//! The process that holds the lock: its descriptors, and what it does when the supervisor does
//! nothing.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Write as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    io::{fcntl_dupfd_cloexec, ioctl_fionread},
    process::{
        DumpableBehavior, Pid, Signal, getpid, getppid, kill_process_group,
        set_dumpable_behavior, setsid,
    },
    stdio,
};

use crate::{
    BootTime, Report, Word,
    deadline::SharedDeadline,
    machine::{FORCED_GRACE, KILL_BEFORE_MAX},
    processes,
    protocol::{Lines, Pipe},
    signals,
};

/// Descriptors from here on are not the standard ones.
const FIRST_DESCRIPTOR: i32 = 3;
/// The longest pause between two looks for processes to kill.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// The pause after a look that found something, because that may have forked. Each further pause
/// is twice as long.
const LOOK_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// How often the deadline is looked at before it: a force makes it earlier by more than this,
/// and the clock of poll stands still while the machine is suspended.
const DEADLINE_INTERVAL: Duration = Duration::from_millis(500);
/// How much may be unread before nothing is sent that can be left out: a quarter of a pipe.
const UNREAD_MAX: u64 = 16 * 1024;
/// The moment of what does not happen.
const NEVER: u64 = u64::MAX;
/// How long the group of a dead supervisor's command is killed, should it not end.
const KILL_FOR: Duration = Duration::from_secs(10);

/// What the lock process has from its supervisor.
#[derive(Debug)]
pub struct LockProcess {
    deadline: SharedDeadline,
    words: File,
    reports: File,
    supervisor: Pid,
    forced_until: Arc<AtomicU64>,
}

/// What the supervisor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The command is about to start.
    Starts,
    /// To have the lock released, because nothing of the command is left.
    Release,
    /// The same, and then to wait for it again.
    ReleaseAndWait,
    /// Nothing any more: it has died. What could be killed of the command was.
    Died,
}

/// The way to the supervisor.
#[derive(Debug)]
pub struct Reports {
    pipe: File,
    deadline: SharedDeadline,
    forced_until: Arc<AtomicU64>,
}

impl LockProcess {
    /// Makes this process the lock process of its parent. Called before there are threads.
    ///
    /// # Errors
    ///
    /// This process was not started by a supervisor.
    pub fn take_over() -> io::Result<Self> {
        let own = |descriptor| fcntl_dupfd_cloexec(descriptor, FIRST_DESCRIPTOR);
        // stdin has the deadline and stderr the reports, so that a panic from here on is
        // reported, and never a deadline.
        let deadline = SharedDeadline::of_descriptor(own(stdio::stdin())?);
        deadline.read()?;
        let words = File::from(own(stdio::stdout())?);
        let reports = File::from(own(stdio::stderr())?);
        let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        stdio::dup2_stdin(&null)?;
        stdio::dup2_stdout(&null)?;
        stdio::dup2_stderr(&null)?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        signals::outlive(&signals::FOR_COMMAND)?;
        setsid()?;
        let supervisor = getppid().ok_or_else(|| io::Error::other("it has no supervisor"))?;
        let forced_until = Arc::new(AtomicU64::new(NEVER));
        Ok(Self { deadline, words, reports, supervisor, forced_until })
    }

    /// The process ID of the supervisor.
    #[must_use]
    pub fn supervisor(&self) -> u32 {
        self.supervisor.as_raw_pid().unsigned_abs()
    }

    /// The way to the supervisor.
    ///
    /// # Errors
    ///
    /// There are too many open files.
    pub fn reports(&self) -> io::Result<Reports> {
        Ok(Reports {
            pipe: self.reports.try_clone()?,
            deadline: self.deadline.try_clone()?,
            forced_until: Arc::clone(&self.forced_until),
        })
    }

    /// Starts the thread that listens to the supervisor, and that ends the command at the
    /// deadline if the supervisor does not. It is a thread of its own, so that nothing else can
    /// keep it from that.
    ///
    /// # Errors
    ///
    /// The system refuses another thread.
    pub fn watch(self, wishes: impl FnMut(Wish) + Send + 'static) -> io::Result<()> {
        let watch = Watch {
            deadline: self.deadline,
            words: self.words,
            supervisor: self.supervisor,
            forced_until: self.forced_until,
            command: None,
            killed: BTreeSet::new(),
            look_again_in: LOOK_INTERVAL_MIN,
            wishes,
        };
        thread::Builder::new().name("watch".to_owned()).spawn(move || watch.run())?;
        Ok(())
    }
}

impl Reports {
    /// Reports to the supervisor. If it has died, the other thread notices that.
    pub fn send(&mut self, report: &Report) {
        if matches!(report, Report::Granted { .. }) {
            // The force of an earlier grant must not end the command of this one.
            self.forced_until.store(NEVER, Ordering::Relaxed);
        }
        let _ = self.pipe.write_all(format!("{report}\n").as_bytes());
    }

    /// Reports what the supervisor need not know: nothing if it has not read for long. So there
    /// is always room for what it must know.
    pub fn send_if_read(&mut self, report: &Report) {
        if ioctl_fionread(&self.pipe).is_ok_and(|unread| unread < UNREAD_MAX) {
            self.send(report);
        }
    }

    /// Notes the newest safe deadline. If that fails, the earlier one stays.
    pub fn note_deadline(&self, deadline: BootTime) {
        let _ = self.deadline.write(deadline);
    }

    /// Another caller has ended the lock. The supervisor has a moment to end the command.
    pub fn forced(&mut self) {
        self.send(&Report::Forced);
        let until = BootTime::now() + FORCED_GRACE + KILL_BEFORE_MAX;
        self.forced_until.store(until.0, Ordering::Relaxed);
    }
}

struct Watch<W> {
    deadline: SharedDeadline,
    words: File,
    supervisor: Pid,
    /// How long the supervisor has to end the command of a lock that somebody else has ended.
    forced_until: Arc<AtomicU64>,
    command: Option<Command>,
    /// What was killed at the deadline. A suspended supervisor waits for none of it, so no process
    /// ID is another's.
    killed: BTreeSet<i32>,
    /// The pause before the next look for processes to kill.
    look_again_in: Duration,
    wishes: W,
}

struct Command {
    pid: Pid,
    leads_group: bool,
    others: Vec<Pid>,
}

impl<W: FnMut(Wish)> Watch<W> {
    fn run(mut self) {
        let mut lines = Lines::default();
        loop {
            if !self.waits_for_word() {
                self.end_command_if_due();
                continue;
            }
            let mut read = Vec::new();
            let pipe = lines.read(&mut self.words, &mut read);
            for word in read.iter().filter_map(|line| line.parse().ok()) {
                self.heard(word);
            }
            if !matches!(pipe, Ok(Pipe::Open)) {
                self.supervisor_died();
                return;
            }
        }
    }

    /// Waits for something to read, at most until the deadline of a command. Returns whether
    /// there is something.
    fn waits_for_word(&self) -> bool {
        let limit = self.command.as_ref().map(|_| {
            let left = self.deadline().saturating_since(BootTime::now());
            let limit =
                if left.is_zero() { self.look_again_in } else { left.min(DEADLINE_INTERVAL) };
            Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() }
        });
        let mut waiting = [PollFd::new(&self.words, PollFlags::IN)];
        poll(&mut waiting, limit.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// When the command must have ended. A deadline that cannot be read has passed.
    fn deadline(&self) -> BootTime {
        let forced_until = BootTime(self.forced_until.load(Ordering::Relaxed));
        self.deadline.read().unwrap_or_default().min(forced_until)
    }

    fn heard(&mut self, word: Word) {
        let wish = match word {
            Word::Starts { command, leads_group, others } => {
                self.command = Some(Command { pid: command, leads_group, others });
                Wish::Starts
            }
            Word::Release => Wish::Release,
            Word::ReleaseAndWait => Wish::ReleaseAndWait,
        };
        if wish != Wish::Starts {
            self.command = None;
        }
        (self.wishes)(wish);
    }

    /// Kills the command at the deadline: the supervisor is stopped, or it would have done so.
    fn end_command_if_due(&mut self) {
        let Some(command) = &self.command else { return };
        if BootTime::now() < self.deadline() {
            self.killed.clear();
            return;
        }
        command.kill_group();
        self.look_again_in = (self.look_again_in * 2).min(LOOK_INTERVAL);
        for child in processes::children(self.supervisor).unwrap_or_default() {
            let is_others = child == getpid() || command.others.contains(&child);
            if is_others || self.killed.contains(&child.as_raw_pid()) {
                continue;
            }
            if processes::kill_child_of(child, self.supervisor) {
                self.killed.insert(child.as_raw_pid());
                self.look_again_in = LOOK_INTERVAL_MIN;
            }
        }
    }

    /// Kills what can still be found of a dead supervisor's command.
    fn supervisor_died(&mut self) {
        if let Some(command) = &self.command {
            let until = BootTime::now() + KILL_FOR;
            while command.kill_group() && BootTime::now() < until {
                thread::sleep(LOOK_INTERVAL);
            }
        }
        (self.wishes)(Wish::Died);
    }
}

impl Command {
    /// Kills the command's group, if it has one. Returns whether there was something to kill.
    fn kill_group(&self) -> bool {
        self.leads_group && kill_process_group(self.pid, Signal::KILL).is_ok()
    }
}
