//! A terminal: its keyboard, and its foreground.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use leasehold_testkit::leasehold::program;
use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

use crate::stage::{Backend, DEFAULT_SIGNALS, TERM_LATE, until};

/// A terminal with a process that leads its session.
struct Terminal {
    keyboard: File,
    shown: Arc<Mutex<String>>,
    child: Child,
}

impl Terminal {
    fn start(backend: &Backend, command: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = || Stdio::from(open(name.as_c_str(), flags, Mode::empty()).unwrap());
        let child = Command::new("env")
            .args([DEFAULT_SIGNALS, "setsid", "--ctty", "--wait"])
            .args(command)
            .env("LEASEHOLD_STORE", backend.url())
            .env("PS1", "$ ")
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .unwrap();
        let keyboard = File::from(master);
        let (mut screen, shown) =
            (keyboard.try_clone().unwrap(), Arc::<Mutex<String>>::default());
        let writes = Arc::clone(&shown);
        thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                writes.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { keyboard, shown, child }
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    #[track_caller]
    fn shows(&self, text: &str) -> String {
        until(text, || {
            let shown = self.shown.lock().unwrap();
            shown.contains(text).then(|| shown.clone())
        })
    }

    #[track_caller]
    fn status(&mut self) -> i32 {
        until("it ends", || self.child.try_wait().unwrap()).code().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program_path() -> String {
    program().to_str().unwrap().to_owned()
}

#[test]
fn a_command_in_the_foreground_reads_from_the_terminal() {
    let backend = Backend::redis();
    let script = "echo name?; read name </dev/tty; echo \"hello $name\"";
    let program = program_path();
    let mut terminal = Terminal::start(
        &backend,
        &[&program, "lock", "--ttl", "6s", "r", "--", "sh", "-c", script],
    );
    terminal.shows("name?");
    terminal.types("you\n");
    terminal.shows("hello you");
    assert_eq!(terminal.status(), 0);
}

#[test]
fn the_keyboards_interrupt_reaches_the_command_once() {
    let backend = Backend::redis();
    let script = "n=0; trap 'n=$((n+1)); echo \"heard $n\"' INT; echo on; \
                  while [ $n = 0 ]; do sleep 0.1; done; sleep 1; echo \"in all $n\"; exit 9";
    let program = program_path();
    let mut terminal = Terminal::start(
        &backend,
        &[&program, "lock", "--ttl", "6s", "r", "--", "sh", "-c", script],
    );
    terminal.shows("on\r\n");
    terminal.types("\x03");
    terminal.shows("in all 1");
    assert_eq!(terminal.status(), 9);
    assert!(backend.is_free("r"));
}

#[test]
fn the_keyboards_interrupt_ends_the_wait() {
    let backend = Backend::redis();
    let holder = backend.lock(&["r", "--", "sh", "-c", "echo on; sleep 1000"]);
    holder.writes("on");
    let program = program_path();
    let mut terminal = Terminal::start(&backend, &[&program, "lock", "r", "--", "true"]);
    // Its lock process has a session of its own by the time that it is in the queue.
    until("it waits", || {
        let mut get = crate::stage::leasehold(&["get", "r", "--waiters", "-o", "json"]);
        let output = get.env("LEASEHOLD_STORE", backend.url()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("true-").then_some(())
    });
    terminal.types("\x03");
    assert_eq!(terminal.status(), 130);
}

/// The lock is renewed while the job is stopped.
#[test]
fn a_job_that_was_stopped_by_the_keyboard_goes_on() {
    let backend = Backend::redis();
    let program = program_path();
    let mut terminal = Terminal::start(&backend, &["bash", "--norc", "-i"]);
    let script = "echo 'o'n; sleep 6; echo 'do'ne";
    let late = TERM_LATE.join(" ");
    terminal.types(&format!("{program} lock --ttl 6s {late} r -- sh -c \"{script}\"\n"));
    terminal.shows("on\r\n");
    terminal.types("\x1a");
    terminal.shows("Stopped");
    // Past its TTL, by the real clock, because the processes are real.
    thread::sleep(std::time::Duration::from_secs(7));
    assert!(!backend.is_free("r"));
    terminal.types("fg\n");
    terminal.shows("done\r\n");
    terminal.types("echo \"status $?\"\n");
    terminal.shows("status 0");
    terminal.types("exit\n");
    assert_eq!(terminal.status(), 0);
}

/// A signal to the group would end the script, too.
#[test]
fn a_lost_lock_ends_the_command_and_not_the_script_around_it() {
    let backend = Backend::redis();
    let program = program_path();
    let script =
        format!("{program} lock --ttl 6s r -- sh -c 'echo on; sleep 1000'; echo \"status $?\"");
    let mut terminal = Terminal::start(&backend, &["sh", "-c", &script]);
    terminal.shows("on\r\n");
    backend.force("r");
    terminal.shows("status 79");
    assert_eq!(terminal.status(), 0);
}
