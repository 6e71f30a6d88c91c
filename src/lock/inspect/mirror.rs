//! The held locks of a store, kept up to date by its backend while there are watchers.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use self::state::Mirrored;
pub(super) use self::state::{Next, Position};
use super::{
    EndedGrant, GRANTS_SHOWN_MAX, LockView, Scope,
    subscriptions::{CompleteUpTo, SubscriptionNumber, Subscriptions},
};
use crate::LockError;

mod polled;
mod state;
#[cfg(test)]
mod tests;

/// The held resources of a store in the order of their last changes.
///
/// There is one for all watchers of a store. Each of them has a position in the order of the
/// changes. A resource that changes again moves to the end of the order. So a slow watcher
/// misses changes in between, never the last one, and needs no buffer of its own.
#[derive(Debug, Default)]
pub struct Mirror {
    state: Mutex<Mirrored>,
    /// Notified whenever there may be an event.
    changed: watch::Sender<()>,
    /// Which resources are watched. Locked before `state`, if both are.
    subscriptions: Mutex<Subscriptions>,
    /// Sent whenever a watch begins or ends.
    subscriptions_changed: watch::Sender<()>,
}

impl Mirror {
    /// Forgets everything, because changes may have been missed. Watchers get `Restarted`
    /// if they can have received anything; returns whether that is so.
    pub fn restart(&self) -> bool {
        let is_restarted = self.state.lock().restart();
        if is_restarted {
            self.changed.send_replace(());
        }
        is_restarted
    }

    /// Sets the present state of a resource, and the grants that have ended since it was
    /// last set. At most [`GRANTS_SHOWN_MAX`] of each are kept, and 10 ended ones of a
    /// resource that is free.
    pub fn set(&self, mut lock: LockView, ended: Vec<EndedGrant>) {
        lock.grants.truncate(GRANTS_SHOWN_MAX);
        let is_change = self.state.lock().set(lock, ended);
        if is_change {
            self.changed.send_replace(());
        }
    }

    /// The number of the newest watch. A backend that learns of changes later than callers
    /// reads it, catches up with the store, and then calls
    /// [`complete_up_to`](Self::complete_up_to). It does so again after each
    /// [change](Self::subscriptions_changed) of the subscriptions.
    #[must_use]
    pub fn newest_subscription(&self) -> u64 {
        self.subscriptions.lock().newest()
    }

    /// Is notified whenever a watch begins or ends: other resources may be watched then.
    #[must_use]
    pub fn subscriptions_changed(&self) -> watch::Receiver<()> {
        self.subscriptions_changed.subscribe()
    }

    /// Records that all locks have been reported that were held when the watch with this
    /// number began.
    pub fn complete_up_to(&self, newest: u64) {
        self.set_complete(|complete| {
            *complete = CompleteUpTo { resources: newest, scopes: newest };
        });
    }

    /// The number of held resources.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.state.lock().held_count()
    }

    /// Ends all watches with this error, because there will be no events.
    pub(super) fn fail(&self, error: LockError) {
        self.state.lock().failed = Some(error);
        self.changed.send_replace(());
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state.lock().failed.is_some()
    }

    /// Is notified whenever there may be something to read.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The position of a watcher that has read nothing.
    pub(super) fn beginning(&self, subscription: SubscriptionNumber) -> Position {
        self.state.lock().beginning(subscription)
    }

    /// The next changes in the scope, of at most `limit` resources. Advances `position`.
    pub(super) fn next(&self, position: &mut Position, limit: usize, scope: &Scope) -> Next {
        self.state.lock().next(position, limit, scope)
    }

    /// Subscribes a watch to the changes of a scope, until the subscription is dropped.
    pub(super) fn subscribe(this: &Arc<Self>, scope: Scope) -> Subscription {
        let number = this.subscriptions.lock().add(scope);
        this.subscriptions_changed.send_replace(());
        Subscription { mirror: Arc::clone(this), number }
    }

    fn set_complete(&self, set: impl FnOnce(&mut CompleteUpTo)) {
        set(&mut self.state.lock().complete);
        self.changed.send_replace(());
    }

    /// Each resource's name, how many grants it has, and why earlier ones ended, in the order
    /// of their last changes.
    #[cfg(any(test, feature = "test-util"))]
    pub fn all_states(&self) -> Vec<(String, usize, Vec<super::EndCause>)> {
        self.state.lock().all_states()
    }
}

/// The subscription of a watch, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Subscription {
    mirror: Arc<Mirror>,
    number: SubscriptionNumber,
}

impl Subscription {
    pub(super) fn number(&self) -> SubscriptionNumber {
        self.number
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.mirror.subscriptions.lock().remove(self.number);
        self.mirror.subscriptions_changed.send_replace(());
    }
}
