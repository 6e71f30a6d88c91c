//! Process trees: nothing of a command outlives the lock, and nothing outlives the release.

use leasehold_testkit::extent;

use crate::stage::{Backend, Marker, until};
use rustix::process::Signal;

/// A daemon: twice forked, in a session of its own, and with none of the command's pipes.
fn daemon(marker: &Marker) -> String {
    format!(
        "(setsid sh -c 'sleep 1000 & wait; : {0}' {0} </dev/null >/dev/null 2>&1 &)",
        marker.0
    )
}

#[test]
fn the_lock_is_held_until_the_last_descendant_has_ended() {
    let backend = Backend::redis();
    let marker = Marker::new();
    let script = format!("{}; echo left", daemon(&marker));
    let mut run = backend.lock(&["r", "--", "sh", "-c", &script]);
    run.writes("left");
    marker.run(1);
    assert!(!backend.is_free("r"));
    assert!(run.runs());
    // Its child ends with it only because the supervisor has it now.
    for process in marker.running() {
        rustix::process::kill_process(process.pid, Signal::KILL).unwrap();
    }
    run.signal(Signal::TERM);
    drop(run);
}

#[test]
fn descendants_are_named_after_a_while() {
    if let Some(why) = extent::left_out() {
        println!("ignored: {why}");
        return;
    }
    let backend = Backend::redis();
    let marker = Marker::new();
    let script = format!("{}; exit 0", daemon(&marker));
    let mut run = backend.lock(&["r", "--", "sh", "-c", &script]);
    run.says("waiting for what it left behind");
    assert!(run.stderr().contains("sh ("), "{}", run.stderr());
    assert!(run.runs());
}

#[test]
fn a_daemon_is_left_if_asked_for() {
    let backend = Backend::redis();
    let marker = Marker::new();
    let script = daemon(&marker);
    assert_eq!(backend.ended(&["-o", "r", "--", "sh", "-c", &script]).0, 0);
    assert!(backend.is_free("r"));
    marker.run(1);
}

#[test]
fn a_lost_lock_ends_the_whole_tree_whatever_it_ignores() {
    for (kind, script) in [
        ("a child that is waited for", "sleep 1000 & wait; : MARK"),
        ("a child that ignores TERM", "sh -c 'trap \"\" TERM; while :; do sleep 1; done' MARK"),
        ("a shell that ignores TERM", "trap '' TERM; while :; do sleep 1; : MARK; done"),
        ("a daemon", "(setsid sh -c 'sleep 1000; : MARK' & ) ; sleep 1000"),
        (
            "a daemon of a daemon",
            "(setsid sh -c '(setsid sh -c \"trap \\\"\\\" TERM; sleep 1000; : MARK\" &); exit' &); \
             exit 0",
        ),
        ("a tree of five", "sh -c 'sh -c \"sh -c \\\"sleep 1000; : MARK\\\"; :\"; :'; : MARK"),
    ] {
        let backend = Backend::redis();
        let marker = Marker::new();
        let script = script.replace("MARK", &marker.0);
        let mut run = backend.lock(&["r", "--", "sh", "-c", &script, &marker.0]);
        until(kind, || (!marker.running().is_empty()).then_some(()));
        backend.force("r");
        assert_eq!(run.status(), 79, "{kind}: {}", run.stderr());
        marker.is_gone();
        assert!(backend.is_free("r"), "{kind}");
    }
}

#[test]
fn children_that_the_caller_had_before_are_left_alone() {
    let backend = Backend::redis();
    let marker = Marker::new();
    let program = leasehold_testkit::leasehold::program();
    let script = format!(
        "sh -c 'sleep 1000; : {0}' {0} & exec {1} lock --ttl 6s r -- sh -c 'echo on; sleep 1000'",
        marker.0,
        program.display()
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).env("LEASEHOLD_STORE", backend.url());
    let mut run = crate::stage::Run::start(command);
    run.writes("on");
    backend.force("r");
    assert_eq!(run.status(), 79, "{}", run.stderr());
    marker.run(1);
}
