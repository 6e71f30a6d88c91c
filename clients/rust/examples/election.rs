//! Leader election: a lock that a loop holds.
//!
//! Start two candidates with `DAPR_GRPC_PORT` of a sidecar, and end the one that leads:
//!
//! ```sh
//! cargo run --example election one
//! cargo run --example election two
//! ```
#![allow(clippy::print_stdout, reason = "it prints who leads")]

use std::{convert::Infallible, env, time::Duration};

use leasehold_client::{Error, Lock, Locks};
use tokio::time::sleep;

/// Before the next try, if the sidecar is out of reach.
const PAUSE: Duration = Duration::from_secs(1);

/// What only the leader does, until it is not the leader any more.
async fn lead(name: &str, lock: &Lock) -> Result<Infallible, Infallible> {
    println!("{name} leads with token {}", lock.token());
    loop {
        sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let name = env::args().nth(1).unwrap_or_else(|| "a candidate".to_owned());
    let locks = Locks::new("lockstore")?;
    loop {
        // Waits without a limit. The death of the leader's process frees the lock at once.
        let term = locks.lock("leader").label(&*name);
        let Err(error) = term.run(async |lock| lead(&name, lock).await).await;
        println!("{name} does not lead: {error}");
        sleep(PAUSE).await;
    }
}
