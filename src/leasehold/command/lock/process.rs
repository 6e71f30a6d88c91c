//! The lock process: from its first try to the release.

use std::{io, time::Duration};

use leasehold_lock::{Granted, LockError};
use leasehold_supervise::{LockProcess, Report, Wish};
use leasehold_tools::ToolError;
use leasehold_util::{exit, retry::Backoff};
use tokio::{
    runtime::Builder,
    sync::mpsc,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    LockArgs,
    hold::{Held, RELEASE_WITHIN, hold},
    reporter::Reporter,
    target::Target,
};
use crate::telemetry::{self, LogLevel};

/// How long an unreachable store is left alone before it is tried again.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(200);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);
/// The supervisor has at most a word in each state.
const WISHES_MAX: usize = 8;

/// Holds the lock for its supervisor, until that does not need it any more.
pub(super) fn run(process: LockProcess, args: &LockArgs, level: LogLevel) -> io::Result<()> {
    let reports = Reporter::new(process.reports()?);
    let log = reports.clone();
    telemetry::init_lines(level, move || log.clone());
    let label = args.options.label_or(process.supervisor());
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (sender, wishes) = mpsc::channel(WISHES_MAX);
    process.watch(move |wish| {
        // The other end is gone when this process ends.
        let _ = sender.blocking_send(wish);
    })?;
    // A wait that no clock can count has no end.
    let until = args.options.wait.and_then(|wait| Instant::now().checked_add(wait));
    runtime.block_on(Holder { args, label, reports, wishes, until }.run());
    Ok(())
}

struct Holder<'a> {
    args: &'a LockArgs,
    label: String,
    reports: Reporter,
    wishes: mpsc::Receiver<Wish>,
    /// When the wait ends.
    until: Option<Instant>,
}

/// How an acquisition has ended.
enum Acquired {
    Granted(Box<(Target, Granted)>),
    /// The supervisor knows why.
    Nothing,
}

impl Holder<'_> {
    async fn run(mut self) {
        loop {
            let (target, granted) = match self.acquire().await {
                Acquired::Granted(granted) => *granted,
                Acquired::Nothing => return,
            };
            let holding = hold(target, granted, self.args, &self.reports, &mut self.wishes);
            match holding.await {
                Held::Over => return,
                Held::Again => {}
            }
        }
    }

    async fn acquire(&mut self) -> Acquired {
        let mut target = None;
        let mut backoff = Backoff::new(RETRY_DELAY_MIN, RETRY_DELAY_MAX);
        let mut is_reported = false;
        loop {
            let trying = attempt(&mut target, self.args, &self.label, self.until);
            let result = tokio::select! {
                result = trying => result,
                wish = self.wishes.recv() => return self.leave(target, wish).await,
            };
            let error = match result {
                Ok(granted) => match target.take() {
                    Some(target) => return Acquired::Granted(Box::new((target, granted))),
                    None => continue,
                },
                Err(error) => error,
            };
            let again = Instant::now() + backoff.next_delay();
            let is_over = self.until.is_some_and(|until| Instant::now() >= until);
            if error.exit != exit::UNAVAILABLE || self.args.options.tries_once() || is_over {
                // The supervisor ends then, and with it perhaps the whole container.
                settled(target).await;
                self.reports.send(&Report::Refused { exit: error.exit, why: error.message });
                return Acquired::Nothing;
            }
            if !is_reported {
                is_reported = true;
                self.reports.say(format!("{}; trying again", error.message));
            }
            tokio::select! {
                () = sleep_until(self.until.map_or(again, |until| until.min(again))) => {}
                wish = self.wishes.recv() => return self.leave(target, wish).await,
            }
        }
    }

    /// The attempt was dropped. Waits until nothing is left of it in the store.
    async fn leave(&self, target: Option<Target>, wish: Option<Wish>) -> Acquired {
        let confirmed = settled(target).await;
        if wish != Some(Wish::Died) {
            self.reports.send(&Report::Released { confirmed });
        }
        Acquired::Nothing
    }
}

/// Waits until nothing is left of attempts that were given up. Returns whether that is so.
async fn settled(target: Option<Target>) -> bool {
    let Some(target) = target else { return true };
    target.close(RELEASE_WITHIN).await
}

/// Opens the store. Nothing is acquired yet, so this ends with the wait.
async fn open(
    args: &LockArgs,
    label: &str,
    until: Option<Instant>,
) -> Result<Target, ToolError> {
    let opening = Target::open(args, label);
    match until.filter(|_| !args.options.tries_once()) {
        None => opening.await,
        Some(until) => timeout_at(until, opening).await.unwrap_or_else(|_| {
            Err(ToolError::unavailable("the store did not answer before the wait ended"))
        }),
    }
}

/// Tries once, or waits.
async fn attempt(
    target: &mut Option<Target>,
    args: &LockArgs,
    label: &str,
    until: Option<Instant>,
) -> Result<Granted, ToolError> {
    let target = match target {
        Some(target) => target,
        None => target.insert(open(args, label, until).await?),
    };
    let (store, mut request) = (target.resource.store(), target.request(args));
    let result = if args.options.tries_once() {
        store.try_lock(request).await
    } else {
        request.wait_end = until;
        store.lock(request).await
    };
    let granted = result.map_err(refused)?;
    granted.receipt.check().map_err(refused)?;
    Ok(granted)
}

/// The exit status of a refusal: a lock that others have is not an error like the others.
fn refused(error: LockError) -> ToolError {
    let is_held = matches!(
        error,
        LockError::Locked { .. }
            | LockError::WaitDeadline
            | LockError::TooManyWaiters(_)
            | LockError::TooManyHolders
    );
    let mut refused = ToolError::from(error);
    if is_held {
        refused.exit = exit::NOT_ACQUIRED;
    }
    refused
}
