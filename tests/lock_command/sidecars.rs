//! Locks of a sidecar's app.

use std::{thread::sleep, time::Duration};

use leasehold_testkit::{
    extent,
    leasehold::{Leasehold, program},
    process::Process,
};
use rustix::process::Signal;

use crate::stage::{Backend, Run, TERM_LATE, leasehold, until};

/// A sidecar over this store.
fn sidecar(backend: &Backend) -> (Leasehold, tempfile::TempDir, String) {
    let Backend::Redis(server) = backend else { panic!("a memory store has one process") };
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {{name: locks}}\n\
         spec: {{type: lock.redis, version: v1, metadata: [{{name: redisHost, value: {:?}}}]}}\n",
        server.address()
    );
    std::fs::write(folder.path().join("locks.yaml"), text).unwrap();
    let mut sidecar = Leasehold::sidecar(folder.path(), &[], &[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (grpc, _) = runtime.block_on(sidecar.listening()).unwrap();
    (sidecar, folder, grpc.to_string())
}

fn through(address: &str, arguments: &[&str]) -> Run {
    let mut command = leasehold(&["lock", "--store", "dapr:locks"]);
    command.args(TERM_LATE).args(arguments).env("DAPR_GRPC_ENDPOINT", address);
    Run::start(command)
}

#[test]
fn a_command_runs_under_a_lock_of_a_sidecars_app() {
    let backend = Backend::redis();
    let (_sidecar, _folder, address) = sidecar(&backend);
    let holder = through(&address, &["r", "--", "sh", "-c", "echo on; sleep 1000"]);
    holder.writes("on");
    assert!(!backend.is_free("lock||app||r"));
    assert_eq!(through(&address, &["-n", "r", "--", "true"]).status(), 75);
    assert_eq!(through(&address, &["-w", "0.5", "r", "--", "true"]).status(), 75);
    assert_eq!(through(&address, &["--namespace", "a", "r", "--", "true"]).status(), 0);
    assert_eq!(through(&address, &["-s", "-n", "s", "--", "true"]).status(), 0);
}

#[test]
fn a_lock_through_a_sidecar_is_renewed_and_released() {
    let backend = Backend::redis();
    let (_sidecar, _folder, address) = sidecar(&backend);
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let script = "echo on; while [ ! -e $0 ]; do sleep 0.05; done";
    let end_path = end.to_str().unwrap();
    let mut run = through(&address, &["--ttl", "6s", "r", "--", "sh", "-c", script, end_path]);
    run.writes("on");
    // Past its TTL, by the real clock, because the processes are real.
    sleep(Duration::from_secs(7));
    assert!(!backend.is_free("lock||app||r"));
    std::fs::write(&end, "").unwrap();
    assert_eq!(run.status(), 0, "{}", run.stderr());
    assert!(backend.is_free("lock||app||r"));
}

#[test]
fn a_command_outlives_a_restart_of_its_sidecar() {
    if let Some(why) = extent::left_out() {
        println!("ignored: {why}");
        return;
    }
    let backend = Backend::redis();
    let (mut first, folder, address) = sidecar(&backend);
    let mut run =
        through(&address, &["--ttl", "20s", "r", "--", "sh", "-c", "echo on; sleep 8"]);
    run.writes("on");
    first.process.kill();
    let port = address.rsplit_once(':').unwrap().1;
    let arguments = ["--dapr-grpc-port", port];
    let mut process = Process::new(program())
        .arguments(["sidecar", "--app-id", "app", "--dapr-listen-addresses", "127.0.0.1"])
        .arguments(["--dapr-http-port", "0", "--resources-path"])
        .arguments([folder.path()])
        .arguments(arguments);
    process.start().unwrap();
    assert_eq!(run.status(), 0, "{}", run.stderr());
    backend.becomes_free("lock||app||r");
    process.kill();
}

#[test]
fn who_is_stopped_while_waiting_through_a_sidecar_leaves_the_queue() {
    let backend = Backend::redis();
    let (_sidecar, _folder, address) = sidecar(&backend);
    let holder = through(&address, &["r", "--", "sh", "-c", "echo on; sleep 1000"]);
    holder.writes("on");
    let mut waiting = through(&address, &["--label", "second", "r", "--", "true"]);
    let shown = || {
        let mut get = leasehold(&["get", "lock||app||r", "--waiters", "-o", "json"]);
        let output = get.env("LEASEHOLD_STORE", backend.url()).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    until("it waits", || shown().filter(|shown| shown.contains("/second")));
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.status(), 143);
    until("it waits no longer", || shown().filter(|shown| !shown.contains("/second")));
}

#[test]
fn a_forced_lock_of_a_sidecar_ends_the_command() {
    let backend = Backend::redis();
    let (_sidecar, _folder, address) = sidecar(&backend);
    let script = "echo on; sleep 1000";
    let mut run = through(&address, &["--ttl", "6s", "r", "--", "sh", "-c", script]);
    run.writes("on");
    backend.force("lock||app||r");
    assert_eq!(run.status(), 79, "{}", run.stderr());
}

#[test]
fn a_sidecar_that_refuses_is_an_error_of_its_own() {
    let backend = Backend::redis();
    let (_sidecar, _folder, address) = sidecar(&backend);
    let mut command = leasehold(&["lock", "--store", "dapr:other", "r", "--", "true"]);
    let output = command.env("DAPR_GRPC_ENDPOINT", &address).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let mut command = leasehold(&["lock", "-n", "--store", "dapr:locks", "r", "--", "true"]);
    let free = leasehold_testkit::ports::free_port().to_string();
    let output = command.env("DAPR_GRPC_PORT", free).output().unwrap();
    assert_eq!(output.status.code(), Some(69), "{output:?}");
}
