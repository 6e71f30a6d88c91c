//! Cases that need a process of their own: this program again, in another role.

use std::{
    env,
    process::{ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use leasehold_client::{Error, Locks};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
    time::{Instant, sleep, timeout},
};

use crate::{
    stage::{Backend, Stage},
    support::{PATIENCE, TTL, eventually_waiting, is_held},
};

/// The variable with the role: the name of the lock that a child takes and holds.
pub(crate) const ROLE: &str = "LEASEHOLD_CLIENT_CHILD";
/// The variable with the TTL in seconds.
const TTL_OF_CHILD: &str = "LEASEHOLD_CLIENT_CHILD_TTL";
/// Much longer than a case may take to find that the lock is free.
const LONG_TTL: Duration = Duration::from_secs(120);

/// Takes the lock, prints its token, and holds it until it is killed; or prints the reason
/// why not. For each line that it reads it prints the result of `check`.
pub(crate) fn main(name: &str) -> ExitCode {
    let ttl = env::var(TTL_OF_CHILD).map_or(LONG_TTL, |secs| {
        Duration::from_secs(secs.parse().expect("the TTL of the child in seconds"))
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let result = runtime.block_on(async {
        let lock = Locks::new("lockstore")?.lock(name).ttl(ttl).acquire().await?;
        println!("{}", lock.token());
        Ok::<_, Error>(lock)
    });
    // Outside the runtime, which confirms the lock meanwhile.
    let result = result.map(|lock| {
        for _ in std::io::stdin().lines() {
            println!(
                "{}",
                lock.check()
                    .map_or_else(|lost| lost.cause().to_string(), |()| "held".to_owned())
            );
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{}", error.reason());
            ExitCode::FAILURE
        }
    }
}

fn child(name: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(ROLE, name).env_remove(TTL_OF_CHILD).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    for variable in ["DAPR_GRPC_ENDPOINT", "DAPR_GRPC_PORT", "DAPR_API_TOKEN"] {
        command.env_remove(variable);
    }
    command
}

/// The first line that a child prints.
async fn line(process: &mut tokio::process::Child) -> String {
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    lines.next_line().await.unwrap().unwrap_or_default()
}

/// The process stands still beyond its deadline. The sidecar still renews, so only the local
/// deadline ends the lock.
pub(crate) async fn a_suspended_process_sees_the_loss_by_check(backend: Arc<Backend>) {
    let stage = backend.shared();
    let ttl = TTL.as_secs().to_string();
    let mut holder = child("suspended-process")
        .envs([("DAPR_GRPC_ENDPOINT", &*stage.address()), (TTL_OF_CHILD, &*ttl)])
        .spawn()
        .unwrap();
    let mut input = holder.stdin.take().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let mut line = async || {
        let line = timeout(PATIENCE, lines.next_line()).await.expect("the child prints");
        line.unwrap().unwrap_or_default()
    };
    let process = holder.id().unwrap().to_string();
    let signal = async |signal: &str| {
        let sent = Command::new("kill").args([signal, &process]).status().await;
        assert!(sent.unwrap().success(), "{signal}");
    };

    assert!(line().await.parse::<i64>().is_ok());
    // So long that an answer of the sidecar has confirmed it.
    sleep(TTL / 2).await;
    input.write_all(b"check\n").await.unwrap();
    assert_eq!(line().await, "held");
    signal("-STOP").await;
    sleep(TTL).await;
    // It is there before the process goes on.
    input.write_all(b"check\n").await.unwrap();
    signal("-CONT").await;
    assert_eq!(line().await, "unconfirmed");
    // The sidecar keeps answering questions, if there are any.
    sleep(TTL / 2).await;
    input.write_all(b"check\n").await.unwrap();
    assert_eq!(line().await, "unconfirmed");
    assert!(is_held(&stage.locks(), "suspended-process").await, "the sidecar still has it");
    drop(input);
    assert!(holder.wait().await.unwrap().success());
}

pub(crate) async fn a_killed_process_frees_the_lock(backend: Arc<Backend>) {
    let stage = backend.shared();
    let (locks, name) = (stage.locks(), "killed-process");
    let mut holder = child(name).env("DAPR_GRPC_ENDPOINT", stage.address()).spawn().unwrap();
    let token: i64 = line(&mut holder).await.parse().unwrap();
    let next = tokio::spawn(locks.lock(name).wait(LONG_TTL).acquire());
    eventually_waiting(&locks, name, 1).await;
    let killed = Instant::now();
    holder.kill().await.unwrap();
    assert!(next.await.unwrap().unwrap().token() > token);
    assert!(killed.elapsed() < LONG_TTL, "the TTL freed it");
}

pub(crate) async fn the_address_and_token_come_from_the_environment(backend: Arc<Backend>) {
    const TOKEN: &str = "a token of this case";
    let guarded = backend.start_with(&[("DAPR_API_TOKEN", TOKEN)]);
    let printed = async |environment: &[(&str, &str)]| {
        let mut process = child("guarded").envs(environment.iter().copied()).spawn().unwrap();
        let line = line(&mut process).await;
        process.kill().await.unwrap();
        line
    };
    let (port, url) = (guarded.port.to_string(), format!("http://{}", guarded.address()));
    let token = ("DAPR_API_TOKEN", TOKEN);
    let refused = printed(&[("DAPR_GRPC_PORT", &port)]).await;
    assert_eq!(refused, "UNAUTHENTICATED");
    let by_port = printed(&[("DAPR_GRPC_PORT", &port), token]).await;
    assert!(by_port.parse::<i64>().is_ok(), "{by_port}");
    let by_url = printed(&[("DAPR_GRPC_ENDPOINT", &url), ("DAPR_GRPC_PORT", "1"), token]).await;
    assert!(by_url.parse::<i64>().is_ok(), "{by_url}");
    a_held_lock_is_confirmed_with_the_token(&guarded, TOKEN).await;
}

/// Every call sends the token: the questions, the unlock, and a parameter comes first.
async fn a_held_lock_is_confirmed_with_the_token(stage: &Stage, token: &str) {
    let refused = stage.builder().api_token("another").build().unwrap();
    let reason = refused.lock("confirmed").acquire().await.unwrap_err().reason().to_owned();
    assert_eq!(reason, "UNAUTHENTICATED");
    let locks = stage.builder().api_token(token).build().unwrap();
    let held = locks.lock("confirmed").ttl(TTL).wait(PATIENCE).acquire().await.unwrap();
    tokio::time::sleep(TTL + TTL / 2).await;
    held.check().unwrap();
    held.unlock().await.unwrap();
    assert!(locks.try_lock("confirmed").acquire().await.unwrap().is_some());
}
