//! For a backend that has to read resources again and again to learn of their changes.

use tokio::sync::watch;

use super::{
    super::{EndCause, EndedGrant, LockView, Wanted, wanted::Demands},
    Mirror, State,
};
use crate::lock::ResourceId;

impl Mirror {
    /// Returns what is watched, and forgets everything else, which the backend need not read:
    /// call this after each change of what is wanted.
    #[must_use]
    pub fn forget_unwanted(&self) -> Wanted {
        let demands = self.demands.lock();
        let wanted = demands.wanted();
        // With the demands locked: who begins to watch a resource finds either what is kept up
        // to date, or nothing.
        self.state.lock().retain(|resource| wanted.has(resource));
        wanted
    }

    /// Is told whenever something else may be [wanted](Self::forget_unwanted).
    #[must_use]
    pub fn demand(&self) -> watch::Receiver<()> {
        self.demanded.subscribe()
    }

    /// Notes the state of a resource as it was just read. Grants that it had before, and has
    /// no more, have ended for a reason that is not known. A grant must not be read behind a
    /// later one, so that of the many that a resource may have, those that were shown are shown
    /// until they end.
    pub fn note_read(&self, lock: LockView) {
        let is_change = {
            let mut state = self.state.lock();
            let ended = state.ended(&lock);
            state.set(lock, ended)
        };
        if is_change {
            self.changed.send_replace(());
        }
    }

    /// The resources that are held as far as was noted, and that `is_asked` accepts.
    pub fn held(&self, is_asked: impl Fn(&ResourceId) -> bool) -> Vec<ResourceId> {
        let state = self.state.lock();
        let held = state.locks.iter().filter(|(_, entry)| !entry.lock.grants.is_empty());
        held.map(|(resource, _)| resource).filter(|it| is_asked(it)).cloned().collect()
    }

    /// Notes that everything was read that watches of single resources want, up to the one
    /// with this number.
    pub fn complete_resources(&self, last: u64) {
        self.state.lock().told.resources = last;
        self.changed.send_replace(());
    }

    /// Notes that everything was read that watches of scopes want, up to the one with this
    /// number.
    pub fn complete_scopes(&self, last: u64) {
        self.state.lock().told.scopes = last;
        self.changed.send_replace(());
    }

    pub(in super::super) fn change_demands<T>(
        &self,
        change: impl FnOnce(&mut Demands) -> T,
    ) -> T {
        let changed = change(&mut self.demands.lock());
        self.demanded.send_replace(());
        changed
    }
}

impl State {
    /// The grants of the resource that are not among those that it has now.
    fn ended(&self, now: &LockView) -> Vec<EndedGrant> {
        let before = self.locks.get(&now.resource).map_or(&[][..], |it| &it.lock.grants);
        let ended = before.iter().filter(|was| now.grants.iter().all(|is| is.id != was.id));
        ended.map(|was| EndedGrant { grant: was.clone(), cause: EndCause::Unknown }).collect()
    }

    /// Forgets the resources that nobody watches.
    fn retain(&mut self, is_wanted: impl Fn(&ResourceId) -> bool) {
        let Self { locks, order, freed, .. } = self;
        locks.retain(|resource, entry| {
            let is_kept = is_wanted(resource);
            if !is_kept {
                order.remove(&entry.number);
                *freed -= usize::from(entry.lock.grants.is_empty());
            }
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{
        super::{EndCause, Scope, WatchEvent, wanted::Want},
        Next, Position,
        tests::{all, changed, free, grant, held},
        *,
    };

    /// A watch of a scope, and its position.
    fn watch(mirror: &Arc<Mirror>, scope: Scope) -> (Want, Position) {
        let want = Want::new(Arc::clone(mirror), scope);
        let position = mirror.beginning(want.number);
        (want, position)
    }

    fn only(name: &str) -> Scope {
        Scope::resource(ResourceId::new(name).unwrap())
    }

    #[test]
    fn a_newcomer_does_not_know_everything_before_its_scope_was_read() {
        let mirror = Arc::new(Mirror::default());
        let (_single, mut of_single) = watch(&mirror, only("a"));
        let read = mirror.forget_unwanted();
        let (_scope, mut of_scope) = watch(&mirror, Scope::prefix("b"));
        let (_late, mut of_late) = watch(&mirror, only("c"));
        let caught_up = |position: &mut Position| all(&mirror, position);
        mirror.complete_resources(read.last_resource);
        mirror.complete_scopes(read.last_scope);
        assert_eq!(caught_up(&mut of_single), Next::CaughtUp { is_complete: true });
        assert_eq!(caught_up(&mut of_scope), Next::CaughtUp { is_complete: false });
        assert_eq!(caught_up(&mut of_late), Next::CaughtUp { is_complete: false });
        mirror.complete_scopes(mirror.forget_unwanted().last_scope);
        assert_eq!(caught_up(&mut of_scope), Next::CaughtUp { is_complete: true });
        assert_eq!(caught_up(&mut of_late), Next::CaughtUp { is_complete: false });
    }

    #[test]
    fn after_a_restart_nothing_is_complete() {
        let mirror = Arc::new(Mirror::default());
        let (_want, mut position) = watch(&mirror, only("a"));
        mirror.complete_resources(mirror.forget_unwanted().last_resource);
        mirror.restart();
        assert_eq!(all(&mirror, &mut position), Next::Restarted);
        assert_eq!(all(&mirror, &mut position), Next::CaughtUp { is_complete: false });
    }

    #[test]
    fn a_grant_that_is_read_no_more_has_ended() {
        let mirror = Arc::new(Mirror::default());
        let (_want, mut position) = watch(&mirror, only("a"));
        mirror.note_read(held("a", 1));
        all(&mirror, &mut position);
        mirror.note_read(held("a", 2));
        let ended = vec![EndedGrant { grant: grant(1), cause: EndCause::Unknown }];
        let told = WatchEvent::Changed { lock: held("a", 2), ended };
        assert_eq!(all(&mirror, &mut position), Next::Changes(vec![told]));
    }

    #[test]
    fn what_was_watched_by_others_before_is_not_told() {
        let mirror = Arc::new(Mirror::default());
        let (early, _) = watch(&mirror, Scope::prefix("a"));
        let (_other, mut of_other) = watch(&mirror, only("b"));
        mirror.note_read(held("a/1", 1));
        mirror.note_read(held("b", 1));
        drop(early);
        let _ = mirror.forget_unwanted();
        let (_late, mut of_late) = watch(&mirror, Scope::prefix("a"));
        let told = mirror.next(&mut of_late, 1000, &Scope::prefix("a"));
        assert_eq!(told, Next::Changes(vec![]));
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
