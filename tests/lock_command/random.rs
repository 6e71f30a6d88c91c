//! Random trees in which random processes are killed and suspended.
//!
//! The rule: nothing of a command runs when its supervisor has ended.

use std::{fs, thread::sleep, time::Duration};

use leasehold_testkit::extent;
use rustix::process::{Signal, kill_process};

use crate::stage::{Backend, Marker, Run, until};

/// How many trees run without LEASEHOLD_SEEDS, and how many of them in `make test`.
const TREES: u64 = 12;
const TREES_OF_TEST: u64 = 3;

/// A process that starts others; each says when it runs.
fn tree(depth: u32, marker: &str) -> String {
    let wait = ["sleep 0.2", "sleep 1", "sleep 30"][fastrand::usize(..3)];
    let trap = if fastrand::bool() { "trap : TERM; " } else { "" };
    let mut script = format!("{trap}echo $LEASEHOLD_FENCING_TOKEN >> $FILE; ");
    if depth > 0 {
        for _ in 0..fastrand::u32(1..3) {
            let child = tree(depth - 1, marker).replace('\'', "'\\''");
            let session = if fastrand::bool() { "setsid " } else { "" };
            let wait = if fastrand::bool() { "" } else { " &" };
            script.push_str(&format!("{session}sh -c '{child}' {marker}{wait}\n"));
        }
    }
    script.push_str(&format!("{wait}; echo $LEASEHOLD_FENCING_TOKEN >> $FILE"));
    script
}

#[test]
fn random_trees_end_with_their_locks() {
    let seeds = std::env::var("LEASEHOLD_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let trees = if extent::left_out().is_some() { TREES_OF_TEST } else { TREES };
    let trees = seeds.unwrap_or(trees);
    let backend = Backend::redis();
    let (mut killed, mut processes) = (0, 0);
    for seed in 0..trees {
        fastrand::seed(seed);
        let marker = Marker::new();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens");
        fs::write(&file, "").unwrap();
        let script = tree(3, &marker.0);
        let mut command = backend.command(&["--ttl", "6s", "r", "--", "sh", "-c"]);
        command.args([&script, &marker.0]).env("FILE", &file);
        let mut run = Run::start(command);
        until("it runs", || (fs::metadata(&file).unwrap().len() > 0).then_some(()));
        sleep(Duration::from_millis(fastrand::u64(..1_500)));
        let fault = fastrand::u32(..6);
        println!("tree {seed}, fault {fault}");
        let running = marker.running();
        processes += running.len();
        match fault {
            0 => backend.force_if_held("r"),
            1 => {
                run.signal(Signal::TERM);
                sleep(Duration::from_millis(500));
                // What has left the group goes on.
                backend.force_if_held("r");
            }
            2 => {
                if let Some(lock_process) = run.lock_process_if_any() {
                    let _ = kill_process(lock_process, Signal::KILL);
                }
            }
            3 => {
                if let Some(process) = fastrand::choice(&running) {
                    killed += 1;
                    let _ = kill_process(process.pid, Signal::KILL);
                }
                backend.force_if_held("r");
            }
            4 => {
                let lock_process = run.lock_process_if_any();
                let send = |signal| lock_process.map(|pid| kill_process(pid, signal));
                let _ = send(Signal::STOP);
                let status = run.status();
                let _ = send(Signal::KILL);
                assert!([0, 79].contains(&status), "seed {seed}: {status}");
            }
            _ => {
                let _ = kill_process(run.pid(), Signal::STOP);
                sleep(Duration::from_millis(500));
                let _ = kill_process(run.pid(), Signal::CONT);
                backend.force_if_held("r");
            }
        }
        let status = run.status();
        marker.is_gone();
        assert!([0, 79, 143].contains(&status), "seed {seed}, fault {fault}: {status}");
    }
    println!("{trees} trees: {processes} processes when a fault came, {killed} of them killed");
}
