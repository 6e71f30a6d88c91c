//! Callers that lock and unlock all the time, so that a fault affects calls.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_reliability::world::probe::{Probe, reason};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Callers of each process, so that there are waiters and holders of several processes.
const CALLERS: usize = 3;
const RESOURCES: usize = 3;
const HOLD: Duration = Duration::from_millis(15);
const WAIT_MAX: Duration = Duration::from_secs(3);
/// `operationTimeout` is 5 s; the rest is for a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The results of the callers.
#[derive(Debug, Default)]
pub(crate) struct Met {
    /// Grants that were unlocked again.
    pub(crate) cycles: u64,
    /// Errors by reason.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Calls that took longer than any may.
    pub(crate) hung: Vec<String>,
}

/// Callers at work.
pub(crate) struct Load {
    met: Arc<Mutex<Met>>,
    stop: CancellationToken,
    callers: JoinSet<()>,
}

impl Load {
    /// Puts callers on every socket.
    pub(crate) fn start(sockets: &[PathBuf]) -> Self {
        let (met, stop) = (Arc::new(Mutex::new(Met::default())), CancellationToken::new());
        let mut callers = JoinSet::new();
        for (process, socket) in sockets.iter().enumerate() {
            for caller in 0..CALLERS {
                let number = process * CALLERS + caller;
                let caller = Caller { number, socket: socket.clone(), met: Arc::clone(&met) };
                callers.spawn(caller.run(stop.clone()));
            }
        }
        Self { met, stop, callers }
    }

    /// How many grants have been unlocked so far.
    pub(crate) fn cycles(&self) -> u64 {
        self.met.lock().unwrap().cycles
    }

    /// Lets every caller end its current step.
    pub(crate) async fn stop(mut self) -> Met {
        self.stop.cancel();
        while let Some(caller) = self.callers.join_next().await {
            caller.unwrap();
        }
        std::mem::take(&mut self.met.lock().unwrap())
    }
}

struct Caller {
    number: usize,
    socket: PathBuf,
    met: Arc<Mutex<Met>>,
}

impl Caller {
    async fn run(self, stop: CancellationToken) {
        let mut turn = self.number;
        let mut probe = None;
        while !stop.is_cancelled() {
            let Some(connected) = &probe else {
                probe = Probe::connect(&self.socket).await.ok();
                sleep(HOLD).await;
                continue;
            };
            turn += 1;
            self.cycle(connected, &format!("r{}", turn % RESOURCES), turn.is_multiple_of(2))
                .await;
        }
    }

    async fn cycle(&self, probe: &Probe, resource: &str, waits: bool) {
        let granted = if waits {
            self.timed("Lock", probe.lock(resource, WAIT_MAX)).await
        } else {
            self.timed("TryLock", probe.try_lock(resource)).await
        };
        sleep(HOLD).await;
        let Some((lock_id, _)) = granted else { return };
        // An unlock that is refused or unknown may not have been carried out.
        for _ in 0..4 {
            if self.timed("Unlock", probe.unlock(resource, &lock_id)).await.is_some() {
                self.met.lock().unwrap().cycles += 1;
                return;
            }
            sleep(HOLD).await;
        }
    }

    async fn timed<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Option<T> {
        let sent = Instant::now();
        let answer = call.await;
        let mut met = self.met.lock().unwrap();
        if sent.elapsed() > ANSWER_WITHIN {
            let error = answer.as_ref().err().map(|why| format!("{}: {why}", reason(why)));
            met.hung.push(format!("{what} took {:?}: {error:?}", sent.elapsed()));
        }
        answer.map_err(|why| *met.errors.entry(reason(&why)).or_default() += 1).ok()
    }
}
