//! One process that increments the register under a lock.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::Register;
use crate::{
    client::{Caller, process},
    history::{Acquisition, Call, Log, Outcome},
};

/// What is locked.
const RESOURCE: &str = "register";

/// What a worker is told.
#[derive(Clone, Debug, clap::Args)]
pub struct Settings {
    /// A leasehold process's socket.
    #[arg(long)]
    pub socket: PathBuf,
    /// The register's file.
    #[arg(long)]
    pub register: PathBuf,
    /// Whether the register lets stale tokens through.
    #[arg(long)]
    pub unchecked: bool,
    /// The number of this process in its run.
    #[arg(long)]
    pub process: u32,
    /// Where its calls are recorded.
    #[arg(long)]
    pub history: PathBuf,
    /// How often it increments; until its standard input ends if absent.
    #[arg(long)]
    pub times: Option<u64>,
    /// For how long it computes between reading and writing.
    #[arg(long, default_value_t = 5)]
    pub compute_ms: u64,
    /// The TTL that it asks for.
    #[arg(long, default_value_t = 300)]
    pub ttl_ms: u64,
}

/// Increments: locks, reads, computes, writes back, unlocks. It never looks at
/// its safe deadline, as too many programs do not.
pub async fn work(settings: Settings) -> anyhow::Result<()> {
    let mut register = Register::open(&settings.register, !settings.unchecked)?;
    let log = Arc::new(Log::append(&settings.history)?);
    let ids = Caller::ids(settings.process);
    let caller = Caller::new([process(&settings.socket)].into(), log, ids, 0);
    let mut done = 0;
    let end = tokio::spawn(crate::client::wait_for_the_end());
    while settings.times.is_none_or(|times| done < times)
        && (settings.times.is_some() || !end.is_finished())
    {
        let ttl_ms = settings.ttl_ms;
        let acquisition = Acquisition { ttl_ms, ..Acquisition::default() };
        let call = Call::Lock { acquisition, wait_ms: 5_000 };
        let Outcome::Granted(granted) = caller.call(RESOURCE, call, None).await? else {
            continue;
        };
        // Somebody who is refused has lost the lock, and begins again.
        if let Ok(base) = register.read(granted.token)? {
            sleep(Duration::from_millis(settings.compute_ms)).await;
            if register.write(granted.token, base, base + 1)?.is_ok() {
                done += 1;
            }
        }
        let unlock = Call::Unlock { lock_id: granted.lock_id };
        let unlocked = caller.call(RESOURCE, unlock, None);
        let _ = timeout(Duration::from_secs(5), unlocked).await;
    }
    end.abort();
    Ok(())
}
