//! Locks that end early, and outages that they survive.

use std::{fs, thread::sleep, time::Duration};

use leasehold_testkit::extent;

use crate::stage::{Backend, Marker, until};

#[test]
fn a_forced_lock_ends_the_command() {
    for backend in [Backend::redis(), Backend::socket()] {
        let mut run = backend.lock(&["r", "--", "sh", "-c", "echo on; sleep 1000"]);
        run.writes("on");
        backend.force("r");
        assert_eq!(run.status(), 79);
        assert!(run.stderr().contains("somebody else has ended the lock"), "{}", run.stderr());
        assert!(backend.is_free("r"));
    }
}

/// The command may clean up after TERM, and its exit status counts for nothing then.
#[test]
fn a_forced_command_is_asked_to_end_first() {
    let backend = Backend::redis();
    let script = "trap 'echo cleaned; exit 0' TERM; echo on; while :; do sleep 0.1; done";
    let mut run = backend.lock(&["r", "--", "sh", "-c", script]);
    run.writes("on");
    backend.force("r");
    assert_eq!(run.status(), 79);
    assert!(run.stdout().contains("cleaned"));
}

/// The status was 0 if the command ended before the next renewal.
#[test]
fn a_force_that_only_the_release_notices_is_reported() {
    for backend in [Backend::redis(), Backend::socket()] {
        let folder = tempfile::tempdir().unwrap();
        let end = folder.path().join("end");
        let script = "echo on; while [ ! -e $0 ]; do sleep 0.05; done";
        let end_path = end.to_str().unwrap();
        // No renewal comes before the end.
        let mut run = backend.lock(&["--ttl", "60s", "r", "--", "sh", "-c", script, end_path]);
        run.writes("on");
        backend.force("r");
        fs::write(&end, "").unwrap();
        assert_eq!(run.status(), 79, "{}", run.stderr());
        assert!(run.stderr().contains("before the command ended"), "{}", run.stderr());
    }
}

#[test]
fn a_short_outage_is_survived() {
    if let Some(why) = extent::left_out() {
        println!("ignored: {why}");
        return;
    }
    for backend in [Backend::redis(), Backend::socket()] {
        let script = "echo on; sleep 1000";
        let mut run = backend.lock(&[
            "--ttl",
            "20s",
            "--term-before",
            "1s",
            "r",
            "--",
            "sh",
            "-c",
            script,
        ]);
        run.writes("on");
        backend.suspend();
        sleep(Duration::from_secs(4));
        backend.resume();
        sleep(Duration::from_secs(1));
        assert!(run.runs(), "{}", run.stderr());
        backend.force("r");
        assert_eq!(run.status(), 79);
    }
}

/// Trap: all 31
#[test]
fn an_outage_of_more_than_the_ttl_ends_the_command_before_the_lock() {
    for backend in [Backend::redis(), Backend::etcd(), Backend::socket()] {
        let marker = Marker::new();
        let script =
            format!("trap '' TERM; echo on; while :; do sleep 0.1; : {}; done", marker.0);
        let mut run = backend.lock(&["--ttl", "2s", "r", "--", "sh", "-c", &script]);
        run.writes("on");
        backend.suspend();
        until("the command is killed", || marker.running().is_empty().then_some(()));
        backend.resume();
        assert_eq!(run.status(), 79);
        assert!(run.stderr().contains("not be renewed in time"), "{}", run.stderr());
        backend.becomes_free("r");
    }
}

#[test]
fn the_longest_hold_ends_the_command_and_releases_the_lock() {
    let backend = Backend::socket();
    let mut run = backend.lock(&["--max-hold", "0.5", "r", "--", "sleep", "1000"]);
    assert_eq!(run.status(), 79);
    assert!(run.stderr().contains("--max-hold"), "{}", run.stderr());
    assert!(backend.is_free("r"));
}
