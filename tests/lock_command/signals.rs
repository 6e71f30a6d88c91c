//! Signals to the supervisor.

use std::process::{Command, Stdio};

use leasehold_testkit::leasehold::program;
use rustix::process::Signal;

use crate::stage::{Backend, Marker, Run, until};

#[test]
fn each_signal_reaches_the_whole_group() {
    let backend = Backend::redis();
    for (signal, status) in [
        (Signal::TERM, 143),
        (Signal::INT, 130),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
        (Signal::USR1, 138),
        (Signal::USR2, 140),
    ] {
        let marker = Marker::new();
        // A shell that is about to start a program may miss SIGINT.
        let sleep = r#"perl -e '$| = 1; print "on\n"; sleep 1000'"#;
        let script = format!("{sleep} {0}; : {0}", marker.0);
        let mut run = backend.lock(&["r", "--", "sh", "-c", &script]);
        run.writes("on");
        run.signal(signal);
        assert_eq!(run.status(), status);
        marker.is_gone();
        assert!(backend.is_free("r"));
    }
}

#[test]
fn a_command_decides_for_itself_what_a_signal_means() {
    let backend = Backend::redis();
    let script =
        "trap 'echo heard' USR1; trap 'exit 5' TERM; echo on; while :; do sleep 0.05; done";
    let mut run = backend.lock(&["r", "--", "sh", "-c", script]);
    run.writes("on");
    run.signal(Signal::USR1);
    run.writes("heard");
    run.signal(Signal::TERM);
    assert_eq!(run.status(), 5);
}

#[test]
fn a_signal_ends_the_wait() {
    for backend in [Backend::redis(), Backend::socket()] {
        let mut holder = backend.lock(&["r", "--", "sh", "-c", "echo on; sleep 1000"]);
        holder.writes("on");
        let mut waiting = backend.lock(&["r", "--", "true"]);
        waiting.lock_process();
        waiting.signal(Signal::TERM);
        assert_eq!(waiting.status(), 143);
        holder.signal(Signal::TERM);
        holder.status();
        assert!(backend.is_free("r"));
    }
}

#[test]
fn a_stopped_command_ends_by_a_signal_all_the_same() {
    let backend = Backend::redis();
    let mut run = backend.lock(&["r", "--", "sh", "-c", "echo on; kill -STOP $$"]);
    run.writes("on");
    run.signal(Signal::TERM);
    assert_eq!(run.status(), 143);
}

#[test]
fn a_signal_that_is_ignored_at_the_start_is_not_handed_on() {
    let backend = Backend::redis();
    let mut command = Command::new("nohup");
    command.arg(program()).args([
        "lock",
        "--ttl",
        "6s",
        "r",
        "--",
        "sh",
        "-c",
        "echo on; sleep 1; exit 6",
    ]);
    command.env("LEASEHOLD_STORE", backend.url()).stdin(Stdio::null());
    let mut run = Run::start(command);
    run.writes("on");
    run.signal(Signal::HUP);
    assert_eq!(run.status(), 6);
}

#[test]
fn timeout_ends_it_and_all_that_it_started() {
    let backend = Backend::redis();
    let marker = Marker::new();
    let script = format!("sh -c 'sleep 1000; : {0}' {0}; : {0}", marker.0);
    let mut command = Command::new("timeout");
    command
        .arg("2")
        .arg(program())
        .args(["lock", "--ttl", "6s", "r", "--", "sh", "-c", &script]);
    command.env("LEASEHOLD_STORE", backend.url()).stdin(Stdio::null());
    assert_eq!(Run::start(command).status(), 124);
    marker.goes();
    backend.becomes_free("r");
}

/// As systemd stops a service: every process of its control group gets the signal.
#[test]
fn a_stop_that_reaches_every_process_is_orderly() {
    let backend = Backend::redis();
    let marker = Marker::new();
    let script = format!("sh -c 'echo on; sleep 1000; : {0}' {0}; : {0}", marker.0);
    let mut run = backend.lock(&["r", "--", "sh", "-c", &script]);
    run.writes("on");
    let lock_process = run.lock_process();
    for process in marker.running() {
        let _ = rustix::process::kill_process(process.pid, Signal::TERM);
    }
    rustix::process::kill_process(lock_process, Signal::TERM).unwrap();
    run.signal(Signal::TERM);
    assert_eq!(run.status(), 143);
    marker.is_gone();
    assert!(backend.is_free("r"));
}

/// A pipe that nobody reads once made a supervisor wait for its reader.
#[test]
fn a_reader_who_does_not_read_delays_nothing() {
    let backend = Backend::redis();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut full = writer.try_clone().unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    while std::io::Write::write(&mut full, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    let mut command = backend.command(&["-v", "r", "--", "sleep", "1000"]);
    let mut child = command.stderr(writer).stdout(Stdio::null()).spawn().unwrap();
    until("the lock is held", || (!backend.is_free("r")).then_some(()));
    backend.force("r");
    let ended = until("it ends", || child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(79));
    drop(reader);
}
