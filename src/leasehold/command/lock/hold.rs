//! A lock that is held for the supervisor.

use std::time::Duration;

use leasehold_held::{Cause, Engine, EngineOptions, HeldError, Holding, MaxHold, Resource};
use leasehold_lock::{FencingToken, Granted, Instant, LockError, LockId, Mode, UnlockRequest};
use leasehold_supervise::{BootTime, Report, Wish};
use leasehold_util::retry::Backoff;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use super::{LockArgs, reporter::Reporter, target::Target};

/// How long it may take to leave a queue, or to release a lock.
pub(super) const RELEASE_WITHIN: Duration = Duration::from_secs(5);
/// How long it may take to close the store after that.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
const RETRY_DELAY_MIN: Duration = Duration::from_millis(50);
const RETRY_DELAY_MAX: Duration = Duration::from_millis(500);

/// What follows.
pub(super) enum Held {
    /// Nothing.
    Over,
    /// Another acquisition.
    Again,
}

/// Renews a lock until the supervisor says that nothing is left of the command. Only then is it
/// released.
pub(super) async fn hold(
    target: Target,
    granted: Granted,
    args: &LockArgs,
    reports: &Reporter,
    wishes: &mut mpsc::Receiver<Wish>,
) -> Held {
    let (_healthy, health) = watch::channel(true);
    let (sender, mut lost) = mpsc::channel(1);
    let engine = Engine::start(EngineOptions::default(), health, sender);
    let (deadlines, mut deadline) = watch::channel(granted.since);
    let resource = target.resource.clone();
    let Some(place) = engine.place() else { return Held::Over };
    // From here on it is not undone: the supervisor decides.
    granted.receipt.accept();
    let (token, ttl) = (granted.token, granted.ttl);
    let lock_id = granted.lock_id.clone();
    engine.hold(Holding {
        resource: resource.clone(),
        app_resource: resource.id.clone(),
        lock_id: granted.lock_id,
        attempt: granted.attempt,
        grant_id: granted.id,
        mode: if args.options.shared { Mode::Shared } else { Mode::Exclusive },
        token,
        request_id: None,
        ttl,
        asked: args.options.ttl.unwrap_or(ttl),
        since: granted.since,
        renewed: true,
        // The supervisor sees to that.
        max_hold: MaxHold::Unlimited,
        place,
        deadlines: Some(deadlines),
    });
    note(reports, &mut deadline);
    reports.send(&Report::Granted { token: token.map(FencingToken::get), ttl });
    loop {
        tokio::select! {
            Ok(()) = deadline.changed() => note(reports, &mut deadline),
            Some(lock) = lost.recv() => {
                // The supervisor knows the deadline, which is every other loss.
                if lock.cause == Cause::Forced {
                    reports.forced();
                }
            }
            wish = wishes.recv() => match wish {
                Some(Wish::Starts) => {}
                Some(Wish::Release) => {
                    let released = release(&engine, &resource, &lock_id).await;
                    if released == Some(Released::WasForced) {
                        reports.forced();
                    }
                    // Before the supervisor ends, and with it perhaps the whole container.
                    target.close(CLOSE_WITHIN).await;
                    reports.send(&Report::Released { confirmed: released.is_some() });
                    return Held::Over;
                }
                Some(Wish::ReleaseAndWait) => {
                    release(&engine, &resource, &lock_id).await;
                    target.close(CLOSE_WITHIN).await;
                    return Held::Again;
                }
                Some(Wish::Died) | None => return Held::Over,
            },
        }
    }
}

/// Notes the newest deadline.
fn note(reports: &Reporter, deadline: &mut watch::Receiver<Instant>) {
    // This clock first: whatever passes between the two makes the deadline earlier.
    let now = BootTime::now();
    let left = deadline.borrow_and_update().saturating_duration_since(Instant::now());
    reports.note_deadline(now + left);
}

/// How a lock is known to have ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Released {
    Now,
    /// Somebody else had ended it before.
    WasForced,
}

/// Releases the lock. Returns `None` if it is not known whether it has ended.
async fn release(engine: &Engine, resource: &Resource, lock_id: &LockId) -> Option<Released> {
    let releasing = async {
        let mut backoff = Backoff::new(RETRY_DELAY_MIN, RETRY_DELAY_MAX);
        loop {
            let mut result = engine.unlock(resource, lock_id.clone()).await;
            if matches!(result, Err(HeldError::Lost(cause)) if cause != Cause::Forced) {
                // The store may still have it.
                let request = UnlockRequest::owner(resource.id.clone(), lock_id.clone());
                result = resource.store().unlock(request).await.map_err(HeldError::from);
            }
            match result {
                Err(HeldError::Lost(_)) => return Released::WasForced,
                Ok(()) | Err(HeldError::Lock(LockError::NotFound { .. })) => {
                    return Released::Now;
                }
                Err(_) => backoff.pause().await,
            }
        }
    };
    timeout(RELEASE_WITHIN, releasing).await.ok()
}
