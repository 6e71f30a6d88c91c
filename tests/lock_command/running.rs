//! Commands that run and end.

use std::{fs, os::unix::fs::PermissionsExt as _};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::runtime::Builder;

use crate::stage::{Backend, Run, leasehold, until};

#[test]
fn the_exit_status_is_the_commands_and_the_lock_is_released() {
    for backend in [Backend::redis(), Backend::socket()] {
        assert_eq!(backend.ended(&["r", "--", "sh", "-c", "exit 3"]), (3, String::new()));
        assert!(backend.is_free("r"));
        assert_eq!(backend.ended(&["r", "--", "sh", "-c", "kill -9 $$"]).0, 137);
        assert!(backend.is_free("r"));
    }
}

#[test]
fn the_command_knows_its_token_and_no_secret() {
    let backend = Backend::redis();
    let script = "echo $LEASEHOLD_FENCING_TOKEN; env | grep -c PASSWORD; env | grep LEASEHOLD_";
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let mut command = backend.command(&["jobs/1", "--", "sh", "-c", script]);
        command.env("LEASEHOLD_STORE", format!("{}?maxTTL=90s", backend.url()));
        command.env("LEASEHOLD_PASSWORD", "");
        let mut run = Run::start(command);
        assert_eq!(run.status(), 0, "{}", run.stderr());
        let stdout = run.stdout();
        tokens.push(stdout.lines().next().unwrap().parse::<u64>().unwrap());
        assert!(stdout.contains("LEASEHOLD_RESOURCE=jobs/1\n"), "{stdout}");
        let store = format!("LEASEHOLD_STORE_NAME={}\n", backend.url());
        assert!(stdout.contains(&store), "{stdout}");
        assert_eq!(stdout.lines().nth(1), Some("0"));
    }
    assert!(tokens[0] < tokens[1], "{tokens:?}");
}

#[test]
fn a_refused_try_has_an_exit_status_of_its_own() {
    for backend in [Backend::redis(), Backend::socket()] {
        let holder = backend.lock(&["r", "--", "sh", "-c", "echo on; sleep 1000"]);
        holder.writes("on");
        let (status, stderr) = backend.ended(&["-n", "r", "--", "true"]);
        assert_eq!(status, 75);
        assert!(stderr.contains("locked by"), "{stderr}");
        assert_eq!(backend.ended(&["-w", "0.3", "r", "--", "true"]).0, 75);
        assert_eq!(backend.ended(&["-n", "-E", "0", "r", "--", "true"]), (0, String::new()));
        assert_eq!(backend.ended(&["-n", "-s", "-E", "5", "r", "--", "true"]).0, 5);
    }
}

/// It once ended before the first try.
#[test]
fn a_wait_of_no_time_takes_a_free_lock() {
    for backend in [Backend::redis(), Backend::socket()] {
        assert_eq!(backend.ended(&["-w", "0", "r", "--", "true"]).0, 0);
    }
}

#[test]
fn the_ttl_is_the_stores_own_unless_it_is_given() {
    let backend = Backend::socket_with("{name: ttl, value: 7s}, {name: maxTTL, value: 8s}");
    // Without the stage's own.
    let lock = |arguments: &[&str]| {
        let mut command = leasehold(&["lock"]);
        command.args(arguments).env("LEASEHOLD_STORE", backend.url());
        Run::start(command)
    };
    let holder = lock(&["r", "--", "sh", "-c", "echo on; sleep 1000"]);
    holder.writes("on");
    let mut get = leasehold(&["get", "r"]);
    let output = get.env("LEASEHOLD_STORE", backend.url()).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    // After the mode, the holder and the age.
    let left = shown.lines().nth(1).and_then(|row| row.split_whitespace().nth(3));
    let left = left.and_then(|left| left.strip_suffix('s')?.parse::<u64>().ok());
    assert!(left.is_some_and(|left| (1..=7).contains(&left)), "{shown}");
    assert_eq!(lock(&["--ttl", "9s", "other", "--", "true"]).status(), 64);
}

#[test]
fn shared_locks_are_held_together() {
    let backend = Backend::socket();
    let reader = backend.lock(&["-s", "r", "--", "sh", "-c", "echo on; sleep 1000"]);
    reader.writes("on");
    assert_eq!(backend.ended(&["-s", "-n", "r", "--", "true"]).0, 0);
    assert_eq!(backend.ended(&["-n", "r", "--", "true"]).0, 75);
}

#[test]
fn those_who_wait_run_one_after_the_other() {
    for backend in [Backend::redis(), Backend::socket()] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("order").to_str().unwrap().to_owned();
        let script = format!("echo begin >> {file}; sleep 0.1; echo end >> {file}");
        let mut runs: Vec<_> =
            (0..6).map(|_| backend.lock(&["r", "--", "sh", "-c", &script])).collect();
        for run in &mut runs {
            assert_eq!(run.status(), 0, "{}", run.stderr());
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "begin\nend\n".repeat(6));
    }
}

#[test]
fn a_command_that_cannot_run_is_found_out_before_the_wait() {
    let backend = Backend::redis();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plain");
    fs::write(&file, "#!/nowhere/sh\n").unwrap();
    let path = file.to_str().unwrap();
    let holder = backend.lock(&["r", "--", "sh", "-c", "echo on; sleep 1000"]);
    holder.writes("on");
    assert_eq!(backend.ended(&["r", "--", "no-such-program"]).0, 127);
    assert_eq!(backend.ended(&["r", "--", path]).0, 126);
    // Only exec finds out that its interpreter is missing.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let (status, stderr) = backend.ended(&["other", "--", path]);
    assert_eq!(status, 127, "{stderr}");
    assert!(backend.is_free("other"));
}

/// `fg` lets every process of a job go on, also a command that is not to start yet.
#[test]
fn a_prepared_command_starts_by_the_supervisors_word_only() {
    let own = std::process::id().to_string();
    let mut run = Run::start(leasehold(&["lock-stub", &own, "--", "echo", "started"]));
    let stops = || until("it stops", || has_stopped(run.pid()).then_some(()));
    stops();
    for _ in 0..3 {
        run.signal(Signal::CONT);
        stops();
    }
    assert_eq!(run.stdout(), "");
    run.signal(Signal::URG);
    run.signal(Signal::CONT);
    assert_eq!(run.status(), 0);
    assert_eq!(run.stdout(), "started\n");
}

#[test]
fn a_command_is_not_started_for_another_parent() {
    let mut run = Run::start(leasehold(&["lock-stub", "1", "--", "echo", "started"]));
    assert_eq!(run.status(), 70);
}

/// Whether a child of this process has stopped since it was last asked for.
fn has_stopped(pid: Pid) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(pid), options), Ok(Some(_)))
}

#[test]
fn a_wrong_command_line_is_64() {
    let backend = Backend::redis();
    for wrong in [
        &["r"][..],
        &["r", "true"],
        &["-n", "-w", "1", "r", "--", "true"],
        &["--ttl", "x", "r", "--", "true"],
        &["--ttl", "1000h", "r", "--", "true"],
        &["--namespace", "a", "r", "--", "true"],
        &["a\nb", "--", "true"],
        &["", "--", "true"],
        &["--signal", "STOP", "r", "--", "true"],
    ] {
        assert_eq!(backend.ended(wrong).0, 64, "{wrong:?}");
    }
}

#[test]
fn a_store_that_is_out_of_reach_is_waited_for() {
    let free = leasehold_testkit::ports::free_port();
    let url = format!("redis://127.0.0.1:{free}");
    let tried = |arguments: &[&str]| {
        let mut command = leasehold(&["lock", "--store", &url]);
        command.args(arguments).args(["r", "--", "true"]);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(tried(&["-n"]).0, Some(69));
    let (status, stderr) = tried(&["-w", "2"]);
    assert_eq!(status, Some(69));
    assert!(stderr.contains("trying again"), "{stderr}");
}

#[test]
fn refused_credentials_are_77() {
    let server = leasehold_testkit::redis::RedisServer::start_with(&["--requirepass", "right"]);
    let tried = |password: &str| {
        let mut command = leasehold(&["lock", "--store", &server.url(), "r", "--", "true"]);
        command.env("LEASEHOLD_PASSWORD", password).output().unwrap().status.code()
    };
    assert_eq!(tried("wrong"), Some(77));
    assert_eq!(tried("right"), Some(0));
}

#[test]
fn who_waits_is_shown_under_the_commands_name() {
    let backend = Backend::redis();
    let holder = backend.lock(&["r", "--", "sh", "-c", "echo on; sleep 1000"]);
    holder.writes("on");
    let waiting = backend.lock(&["--label", "nightly", "r", "--", "true"]);
    let shown = until("who waits is shown", || {
        let mut get = leasehold(&["get", "r", "--waiters", "-o", "json"]);
        let output = get.env("LEASEHOLD_STORE", backend.url()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.contains("nightly").then_some(text)
    });
    assert!(shown.contains(&format!("/sh-{}", holder.pid())), "{shown}");
    drop(waiting);
}

/// The lease that a grant leaves for reuse lived on for the TTL: 1,440 of them for a job of each
/// minute with a TTL of a day.
#[test]
fn no_lease_is_left_in_etcd() {
    let backend = Backend::etcd();
    assert_eq!(backend.ended(&["--ttl", "1h", "r", "--", "true"]).0, 0);
    let Backend::Etcd(server) = &backend else { unreachable!() };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(server.leases()), 0);
}
