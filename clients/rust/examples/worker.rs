//! A worker that loses its lock in the middle of its work, and stops.
//!
//! Run it with `DAPR_GRPC_PORT` of a sidecar, and end its lock by force meanwhile:
//!
//! ```sh
//! cargo run --example worker
//! curl -X DELETE -d '{"force":true}' \
//!   http://127.0.0.1:3500/v1.0-alpha2/lock/lockstore/nightly-import
//! ```
#![allow(clippy::print_stdout, reason = "it prints what happens")]

use std::{error::Error, io, time::Duration};

use leasehold_client::{Lock, Locks};
use tokio::time::sleep;

const ROWS: u32 = 100;

/// Imports a row, which takes a while. The token goes with each write, so that the database can
/// refuse the writes of an earlier holder.
async fn import(row: u32, token: i64) -> io::Result<()> {
    sleep(Duration::from_millis(100)).await;
    println!("imported row {row} with token {token}");
    Ok(())
}

async fn import_all(lock: &Lock) -> io::Result<u32> {
    for row in 1..=ROWS {
        // If the lock is lost, this future is dropped here.
        import(row, lock.token()).await?;
    }
    Ok(ROWS)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = Locks::new("lockstore")?;
    let imported = locks
        .lock("nightly-import")
        .wait(Duration::from_secs(10))
        .label("worker")
        .run(import_all)
        .await;
    match imported {
        Ok(rows) => println!("imported all {rows} rows"),
        Err(error) if error.lost().is_some() => println!("stopped: {error}"),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
