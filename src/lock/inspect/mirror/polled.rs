//! The mirror of a backend that has to poll resources to learn of changes.

use super::{
    super::{LockView, WatchFilter},
    Mirror,
};
use crate::ResourceId;

impl Mirror {
    /// Returns the watched resources, and forgets all others, which the backend need not
    /// read: call this after each [change](Self::subscriptions_changed) of the subscriptions.
    #[must_use]
    pub fn forget_unwatched(&self) -> WatchFilter {
        let subscriptions = self.subscriptions.lock();
        let filter = subscriptions.filter();
        // With the subscriptions locked, so that a new watch of a resource finds either an
        // up-to-date state or none.
        self.state.lock().retain(|resource| filter.accepts(resource));
        filter
    }

    /// Sets the state of a resource that was just read. Grants that it no longer has have ended
    /// with an unknown cause. A grant must not be read behind a later one, so that of the many
    /// that a resource may have, those that were shown are shown until they end.
    pub fn note_read(&self, lock: LockView) {
        let is_change = self.state.lock().set_read(lock);
        if is_change {
            self.changed.send_replace(());
        }
    }

    /// The held resources that `accepts` accepts.
    pub fn held(&self, accepts: impl Fn(&ResourceId) -> bool) -> Vec<ResourceId> {
        self.state.lock().held(accepts)
    }

    /// Records that all resources were read that watches of single resources cover, up to
    /// the watch with this number.
    pub fn complete_resources(&self, last: u64) {
        self.set_complete(|complete| complete.resources = last);
    }

    /// Records that all resources were read that watches of scopes cover, up to the watch
    /// with this number.
    pub fn complete_scopes(&self, last: u64) {
        self.set_complete(|complete| complete.scopes = last);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        super::{
            super::{EndCause, EndedGrant, Scope, WatchEvent},
            Next, Position, Subscription,
            tests::{all, changed, free, grant, held},
        },
        *,
    };

    /// A watch of a scope, and its position.
    fn watch(mirror: &Arc<Mirror>, scope: Scope) -> (Subscription, Position) {
        let subscription = Mirror::subscribe(mirror, scope);
        let position = mirror.beginning(subscription.number());
        (subscription, position)
    }

    fn only(name: &str) -> Scope {
        Scope::resource(ResourceId::new(name).unwrap())
    }

    /// Trap: redis 6
    #[test]
    fn a_newcomer_does_not_know_everything_before_its_scope_was_read() {
        let mirror = Arc::new(Mirror::default());
        let (_single, mut of_single) = watch(&mirror, only("a"));
        let read = mirror.forget_unwatched();
        let (_scope, mut of_scope) = watch(&mirror, Scope::prefix("b"));
        let (_late, mut of_late) = watch(&mirror, only("c"));
        let caught_up = |position: &mut Position| all(&mirror, position);
        mirror.complete_resources(read.last_resource);
        mirror.complete_scopes(read.last_scope);
        assert_eq!(caught_up(&mut of_single), Next::CaughtUp { is_complete: true });
        assert_eq!(caught_up(&mut of_scope), Next::CaughtUp { is_complete: false });
        assert_eq!(caught_up(&mut of_late), Next::CaughtUp { is_complete: false });
        mirror.complete_scopes(mirror.forget_unwatched().last_scope);
        assert_eq!(caught_up(&mut of_scope), Next::CaughtUp { is_complete: true });
        assert_eq!(caught_up(&mut of_late), Next::CaughtUp { is_complete: false });
    }

    #[test]
    fn after_a_restart_nothing_is_complete() {
        let mirror = Arc::new(Mirror::default());
        let (_watch, mut position) = watch(&mirror, only("a"));
        mirror.complete_resources(mirror.forget_unwatched().last_resource);
        mirror.restart();
        assert_eq!(all(&mirror, &mut position), Next::Restarted);
        assert_eq!(all(&mirror, &mut position), Next::CaughtUp { is_complete: false });
    }

    #[test]
    fn a_grant_that_is_read_no_more_has_ended() {
        let mirror = Arc::new(Mirror::default());
        let (_watch, mut position) = watch(&mirror, only("a"));
        mirror.note_read(held("a", 1));
        all(&mirror, &mut position);
        mirror.note_read(held("a", 2));
        let ended = vec![EndedGrant { grant: grant(1), cause: EndCause::Unknown }];
        let event = WatchEvent::Changed { lock: held("a", 2), ended };
        assert_eq!(all(&mirror, &mut position), Next::Changes(vec![event]));
    }

    #[test]
    fn resources_that_only_others_watched_are_not_reported() {
        let mirror = Arc::new(Mirror::default());
        let (early, _) = watch(&mirror, Scope::prefix("a"));
        let (_other, mut of_other) = watch(&mirror, only("b"));
        mirror.note_read(held("a/1", 1));
        mirror.note_read(held("b", 1));
        drop(early);
        let _ = mirror.forget_unwatched();
        let (_late, mut of_late) = watch(&mirror, Scope::prefix("a"));
        let next = mirror.next(&mut of_late, 1000, &Scope::prefix("a"));
        assert_eq!(next, Next::Changes(vec![]));
        assert_eq!(all(&mirror, &mut of_other), Next::Changes(vec![changed(held("b", 1))]));
    }

    #[test]
    fn only_what_is_held_counts_as_held() {
        let mirror = Mirror::default();
        mirror.note_read(held("a", 1));
        mirror.note_read(held("b", 1));
        mirror.note_read(free("b"));
        assert_eq!(mirror.held(|_| true), [ResourceId::new("a").unwrap()]);
        assert_eq!(mirror.held(|_| false), []);
    }
}
