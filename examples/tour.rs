//! A lock's life over the component's socket, step by step.
//!
//! Starts `leasehold serve` on the memory store, speaks nothing but the socket
//! protocol to it, and then leaves it running until Ctrl-C.
#![allow(clippy::print_stdout, reason = "it is what the tour is for")]

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use clap::Parser;
use leasehold_proto::components::{
    LockRequest, LockResponse, LockStoreInitRequest, RenewLockRequest, UnlockRequest,
    lock_store_client::LockStoreClient,
};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt as _;

/// How long the component may take to be there.
const START_WITHIN: Duration = Duration::from_secs(10);
/// No call of the tour may hang.
const CALL_WITHIN: Duration = Duration::from_secs(10);
/// What the tour locks.
const RESOURCE: &str = "orders/42";
const INSTANCE: &str = "lockstore";

/// A lock's life over the component's socket, step by step.
#[derive(Parser)]
struct Options {
    /// The command to start
    #[arg(long, value_name = "PATH")]
    leasehold: PathBuf,
    /// The folder of the socket
    #[arg(long, value_name = "DIR")]
    socket_folder: PathBuf,
    /// End after the tour instead of serving until Ctrl-C
    #[arg(long)]
    no_wait: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let socket = options.socket_folder.join("memory.sock");
    let mut component = Command::new(&options.leasehold)
        .args(["serve", "--store", "memory", "--log-level", "warn", "--socket-folder"])
        .arg(&options.socket_folder)
        .stdin(Stdio::null())
        // Ctrl-C is for the tour, which ends the component with one signal: two
        // would cut its drain off.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", options.leasehold.display()))?;
    let channel = connect(&socket, &mut component).await?;
    println!("\nleasehold serves lock.memory on {}\n", socket.display());

    tour(&Caller { name: "alice", channel: channel.clone() }, &Caller { name: "bob", channel })
        .await?;
    if !options.no_wait {
        print_how_to_connect(&socket);
        tokio::signal::ctrl_c().await?;
    }
    stop(&mut component).await
}

async fn connect(socket: &Path, component: &mut Child) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
    let give_up = Instant::now() + START_WITHIN;
    loop {
        if let Some(status) = component.try_wait()? {
            bail!("the component ended at its start ({status}); it says why above");
        }
        match endpoint.connect().await {
            Ok(channel) => return Ok(channel),
            Err(error) if Instant::now() > give_up => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn tour(alice: &Caller, bob: &Caller) -> anyhow::Result<()> {
    step("daprd would send Init with the component YAML's metadata; here there are none.");
    alice.init().await?;
    came("the instance is ready");

    step("Alice takes the lock.");
    let first = alice.try_lock().await?;
    came(&describe(&first));

    step("Bob tries the same resource, and does not wait.");
    let refused = bob.try_lock().await.err().context("bob was not refused")?;
    came(&describe_refusal(&refused));

    step("Alice renews: her lock's time starts again, as a minute this time.");
    let ttl = alice.renew(&first.lock_id, 60).await?;
    came(&format!("renewed for {ttl:?}"));

    step("Bob waits for the lock; Alice unlocks half a second later.");
    let waiting = {
        let bob = bob.clone();
        tokio::spawn(async move { bob.lock().await })
    };
    sleep(Duration::from_millis(500)).await;
    alice.unlock(&first.lock_id, false).await?;
    let second = waiting.await??;
    came(&format!("handed over to Bob: {}", describe(&second)));
    ensure!(second.fencing_token > first.fencing_token, "the token did not rise");
    result(
        "Bob's fencing token is greater than Alice's: storage that checks it refuses her late writes.",
    );

    step("Alice still has her old lock ID. It ends nothing of Bob's.");
    let refused = alice.unlock(&first.lock_id, false).await.err().context("not refused")?;
    came(&describe_refusal(&refused));

    step("An operator ends Bob's lock by force, without its lock ID.");
    alice.unlock("", true).await?;
    came("unlocked; whoever waits first would have it now");

    step("Alice takes the free lock and gives it back.");
    let third = alice.try_lock().await?;
    came(&describe(&third));
    alice.unlock(&third.lock_id, false).await?;
    came("released");
    Ok(())
}

/// Somebody who wants the lock.
#[derive(Clone)]
struct Caller {
    name: &'static str,
    channel: Channel,
}

impl Caller {
    async fn init(&self) -> Result<(), Status> {
        self.client().init(request(LockStoreInitRequest::default())).await.map(drop)
    }

    async fn try_lock(&self) -> Result<LockResponse, Status> {
        Ok(self.client().try_lock(request(self.wish())).await?.into_inner())
    }

    async fn lock(&self) -> Result<LockResponse, Status> {
        Ok(self.client().lock(request(self.wish())).await?.into_inner())
    }

    async fn renew(&self, lock_id: &str, ttl_secs: i64) -> Result<Duration, Status> {
        let message = RenewLockRequest {
            resource_id: RESOURCE.to_owned(),
            lock_id: lock_id.to_owned(),
            ttl: Some(prost_types::Duration { seconds: ttl_secs, nanos: 0 }),
            ..Default::default()
        };
        let renewed = self.client().renew_lock(request(message)).await?.into_inner();
        Ok(duration(renewed.ttl))
    }

    async fn unlock(&self, lock_id: &str, force: bool) -> Result<(), Status> {
        let message = UnlockRequest {
            resource_id: RESOURCE.to_owned(),
            lock_id: lock_id.to_owned(),
            force,
            ..Default::default()
        };
        self.client().unlock(request(message)).await.map(drop)
    }

    fn wish(&self) -> LockRequest {
        LockRequest {
            resource_id: RESOURCE.to_owned(),
            ttl: Some(prost_types::Duration { seconds: 30, nanos: 0 }),
            holder: self.name.to_owned(),
            ..Default::default()
        }
    }

    fn client(&self) -> LockStoreClient<Channel> {
        LockStoreClient::new(self.channel.clone())
    }
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(CALL_WITHIN);
    request
        .metadata_mut()
        .insert("x-component-instance", tonic::metadata::MetadataValue::from_static(INSTANCE));
    request
}

fn duration(wire: Option<prost_types::Duration>) -> Duration {
    wire.and_then(|wire| wire.try_into().ok()).unwrap_or_default()
}

fn describe(grant: &LockResponse) -> String {
    format!(
        "granted: lock ID {}, fencing token {}, TTL {:?}, waited {:.0?}",
        shortened(&grant.lock_id),
        grant.fencing_token,
        duration(grant.ttl),
        duration(grant.waited),
    )
}

fn describe_refusal(status: &Status) -> String {
    let info = status.get_details_error_info();
    let (reason, metadata) = info.map(|info| (info.reason, info.metadata)).unwrap_or_default();
    format!("{:?}, reason {reason} {metadata:?}: {}", status.code(), status.message())
}

/// A lock ID is the proof of ownership: never shown whole.
fn shortened(lock_id: &str) -> String {
    format!("{}…", lock_id.chars().take(8).collect::<String>())
}

fn step(what: &str) {
    println!("• {what}");
}

fn came(what: &str) {
    println!("    → {what}");
}

fn result(what: &str) {
    println!("      {what}");
}

fn print_how_to_connect(socket: &Path) {
    let at = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    println!(
        "
It serves on until Ctrl-C. To talk to it, with grpcurl for example:

  grpcurl -plaintext -unix {at} list
  grpcurl -plaintext -unix -H 'x-component-instance: {INSTANCE}' \\
    -d '{{\"resource_id\": \"r\", \"ttl\": \"30s\"}}' \\
    {at} dapr.proto.components.v1.LockStore/TryLock

From Python, Ruby or C++, open the channel unix:{at} with the option
grpc.default_authority = localhost.
",
        at = at.display()
    );
}

/// Ends the component as an operator would: SIGTERM, and its drain.
async fn stop(component: &mut Child) -> anyhow::Result<()> {
    if let Some(pid) = component.id() {
        Command::new("kill").args(["-TERM", &pid.to_string()]).status().await?;
    }
    println!("the component has ended: {}", component.wait().await?);
    Ok(())
}
