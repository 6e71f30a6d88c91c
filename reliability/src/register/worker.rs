//! One process that increments the register, or reads it twice, under a lock.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Register, Stale};
use crate::{
    client::{Caller, process},
    history::{Acquisition, Call, Log, Mode, Outcome},
};

/// The locked resource.
const RESOURCE: &str = "register";

/// The settings of a worker.
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
    /// Reads twice under a shared lock instead.
    #[arg(long)]
    pub reads: bool,
    /// How often it succeeds; until its standard input ends if absent.
    #[arg(long)]
    pub times: Option<u64>,
    /// For how long it computes after it has read.
    #[arg(long, default_value_t = 5)]
    pub compute_ms: u64,
    /// The TTL that it asks for.
    #[arg(long, default_value_t = 300)]
    pub ttl_ms: u64,
}

/// Locks, reads, computes, writes back or reads again, unlocks. It ignores its
/// safe deadline, as too many programs do.
pub async fn work(settings: Settings) -> anyhow::Result<()> {
    let mut register = Register::open(&settings.register, !settings.unchecked)?;
    let log = Arc::new(Log::append(&settings.history)?);
    let ids = Caller::ids(settings.process);
    let caller = Caller::new([process(&settings.socket)].into(), log, ids, 0);
    let mode = if settings.reads { Mode::Shared } else { Mode::Exclusive };
    let mut done = 0;
    let end = tokio::spawn(crate::client::wait_for_the_end());
    while settings.times.is_none_or(|times| done < times)
        && (settings.times.is_some() || !end.is_finished())
    {
        let ttl_ms = settings.ttl_ms;
        let acquisition = Acquisition { ttl_ms, mode, ..Acquisition::default() };
        let call = Call::Lock { acquisition, wait_ms: 5_000 };
        let Outcome::Granted(granted) = caller.call(RESOURCE, call, None).await? else {
            continue;
        };
        // A refused worker has lost the lock, and begins again.
        if access(&mut register, granted.token, &settings).await?.is_ok() {
            done += 1;
        }
        let unlock = Call::Unlock { lock_id: granted.lock_id };
        let unlocked = caller.call(RESOURCE, unlock, None);
        let _ = timeout(Duration::from_secs(5), unlocked).await;
    }
    end.abort();
    Ok(())
}

async fn access(
    register: &mut Register,
    token: i64,
    settings: &Settings,
) -> anyhow::Result<Result<(), Stale>> {
    let base = match register.read(token)? {
        Ok(base) => base,
        Err(stale) => return Ok(Err(stale)),
    };
    sleep(Duration::from_millis(settings.compute_ms)).await;
    if settings.reads {
        register.read_again(token, base)
    } else {
        register.write(token, base, base + 1)
    }
}
