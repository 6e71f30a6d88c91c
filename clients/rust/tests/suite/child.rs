//! Cases that need a process of their own: this program again, in another role.

use std::{
    env,
    process::{ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use leasehold_client::{Error, Locks};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::Instant,
};

use crate::{
    stage::{Backend, Stage},
    support::{PATIENCE, eventually_waiting},
};

/// The variable with the role: the name of the lock that a child takes and holds.
pub(crate) const ROLE: &str = "LEASEHOLD_CLIENT_CHILD";
/// Much longer than a case may take to find that the lock is free.
const LONG_TTL: Duration = Duration::from_secs(120);

/// Takes the lock, prints its token, and holds it until it is killed; or prints the reason
/// why not.
pub(crate) fn main(name: &str) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(async {
        let lock = Locks::new("lockstore")?.lock(name).ttl(LONG_TTL).acquire().await?;
        println!("{}", lock.token());
        lock.lost().await;
        Ok::<_, Error>(())
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
    command.env(ROLE, name).stdout(Stdio::piped()).kill_on_drop(true);
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
    const TTL: Duration = Duration::from_secs(2);
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
