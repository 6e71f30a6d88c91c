//! Processes that are killed or suspended.

use std::{thread::sleep, time::Duration};

use rustix::process::{Signal, kill_process};

use crate::stage::{Backend, Marker, until};

/// A command that ends by KILL only.
fn stubborn(marker: &Marker) -> String {
    format!("trap '' TERM; echo on; while :; do sleep 0.1; : {}; done", marker.0)
}

/// Such a command, and a daemon that it starts.
fn with_daemon(marker: &Marker) -> String {
    let command = stubborn(marker);
    let daemon = command.replace('\'', "\"");
    format!("(setsid sh -c '{daemon}' {} &); {command}", marker.0)
}

#[test]
fn a_command_ends_at_the_deadline_after_the_death_of_the_lock_process() {
    let backend = Backend::redis();
    let marker = Marker::new();
    let script = with_daemon(&marker);
    let mut run = backend.lock(&["--ttl", "6s", "r", "--", "sh", "-c", &script]);
    run.writes("on\non");
    kill_process(run.lock_process(), Signal::KILL).unwrap();
    assert_eq!(run.status(), 79);
    marker.is_gone();
    assert!(run.stderr().contains("renews the lock has ended"), "{}", run.stderr());
    backend.becomes_free("r");
}

#[test]
fn a_command_that_ends_without_the_lock_process_leaves_the_lock_to_its_ttl() {
    let backend = Backend::redis();
    let mut run =
        backend.lock(&["--ttl", "20s", "r", "--", "sh", "-c", "echo on; sleep 1; exit 4"]);
    run.writes("on");
    kill_process(run.lock_process(), Signal::KILL).unwrap();
    assert_eq!(run.status(), 4);
    assert!(!backend.is_free("r"));
}

#[test]
fn a_suspended_lock_process_ends_the_command_at_the_deadline() {
    let backend = Backend::redis();
    let marker = Marker::new();
    let mut run = backend.lock(&["--ttl", "6s", "r", "--", "sh", "-c", &stubborn(&marker)]);
    run.writes("on");
    let lock_process = run.lock_process();
    kill_process(lock_process, Signal::STOP).unwrap();
    assert_eq!(run.status(), 79);
    marker.is_gone();
    kill_process(lock_process, Signal::KILL).unwrap();
}

#[test]
fn the_death_of_the_supervisor_ends_the_command_and_its_group_at_once() {
    for backend in [Backend::redis(), Backend::socket()] {
        let marker = Marker::new();
        let script =
            format!("sh -c '{}' {} & wait", stubborn(&marker).replace('\'', "\""), marker.0);
        let mut run = backend.lock(&["--ttl", "6s", "r", "--", "sh", "-c", &script]);
        run.writes("on");
        run.signal(Signal::KILL);
        assert_eq!(run.status(), -9);
        marker.goes();
        backend.becomes_free("r");
    }
}

/// Trap: redis 31
#[test]
fn a_killed_supervisor_leaves_the_lock_to_its_ttl() {
    let backend = Backend::redis();
    let mut run = backend.lock(&["--ttl", "20s", "r", "--", "sh", "-c", "echo on; sleep 1000"]);
    run.writes("on");
    let lock_process = run.lock_process();
    run.signal(Signal::KILL);
    run.status();
    until("the lock process ends", || {
        rustix::process::test_kill_process(lock_process).is_err().then_some(())
    });
    assert!(!backend.is_free("r"));
}

/// It may have acquired the lock without saying so.
#[test]
fn the_death_of_the_lock_process_ends_the_wait() {
    let backend = Backend::redis();
    let holder = backend.lock(&["r", "--", "sh", "-c", "echo on; sleep 1000"]);
    holder.writes("on");
    let mut waiting = backend.lock(&["r", "--", "true"]);
    kill_process(waiting.lock_process(), Signal::KILL).unwrap();
    assert_eq!(waiting.status(), 70);
}

#[test]
fn a_suspended_supervisor_keeps_the_lock_while_it_is_renewed() {
    let backend = Backend::redis();
    let mut run = backend.lock(&["--ttl", "6s", "r", "--", "sh", "-c", "echo on; sleep 8"]);
    run.writes("on");
    run.signal(Signal::STOP);
    // Past its TTL, by the real clock, because the processes are real.
    sleep(Duration::from_secs(7));
    assert!(!backend.is_free("r"));
    run.signal(Signal::CONT);
    assert_eq!(run.status(), 0, "{}", run.stderr());
}

#[test]
fn the_lock_process_ends_the_command_of_a_suspended_supervisor() {
    let backend = Backend::redis();
    let marker = Marker::new();
    let script = with_daemon(&marker);
    let mut run = backend.lock(&["--ttl", "6s", "r", "--", "sh", "-c", &script]);
    run.writes("on\non");
    run.signal(Signal::STOP);
    backend.suspend();
    marker.goes();
    backend.resume();
    run.signal(Signal::CONT);
    assert_eq!(run.status(), 79);
    backend.becomes_free("r");
}

/// What cannot be closed: a tree that stands still as a whole. It goes on only to be ended.
#[test]
fn a_tree_that_was_suspended_as_a_whole_is_ended_when_it_goes_on() {
    let backend = Backend::redis();
    let marker = Marker::new();
    let mut run = backend.lock(&["--ttl", "6s", "r", "--", "sh", "-c", &stubborn(&marker)]);
    run.writes("on");
    let lock_process = run.lock_process();
    kill_process(lock_process, Signal::STOP).unwrap();
    run.signal(Signal::STOP);
    backend.becomes_free("r");
    run.signal(Signal::CONT);
    assert_eq!(run.status(), 79);
    marker.is_gone();
    kill_process(lock_process, Signal::KILL).unwrap();
}

#[test]
fn who_dies_while_waiting_leaves_the_queue() {
    for backend in [Backend::redis(), Backend::socket()] {
        let mut holder = backend.lock(&["r", "--", "sh", "-c", "echo on; sleep 1000"]);
        holder.writes("on");
        let mut waiting = backend.lock(&["-v", "r", "--", "true"]);
        let lock_process = waiting.lock_process();
        waiting.signal(Signal::KILL);
        assert_eq!(waiting.status(), -9);
        until("the lock process ends", || {
            rustix::process::test_kill_process(lock_process).is_err().then_some(())
        });
        holder.signal(Signal::TERM);
        holder.status();
        assert!(backend.is_free("r"));
    }
}
