//! Compares the answers of a backend with those of the model.

use leasehold_lock::{
    Attempt, BackendError, Grant, GrantId, Mode, ResourceId,
    inspect::{GrantView, PageRequest, Selection},
};

use crate::model::{Held, unworded};

use super::{Differential, RESOURCES, Result, Waiting, until};

impl Differential {
    /// Compares the reported grants and waiters.
    pub(super) async fn look(&mut self) {
        let handle = self.handle();
        let Some(inspect) = handle.inspect() else { return };
        let all = PageRequest::first(1000);
        let mut listed = inspect.list(&Selection::default(), &all, until()).await.unwrap();
        assert_eq!(listed.next, None, "a page of 1,000 has everything");
        for resource in RESOURCES {
            let resource = ResourceId::new(resource).unwrap();
            let held = self.model.held(resource.as_str());
            let mut expected: Vec<_> = held.iter().map(Held::by).map(seen_of).collect();
            expected.sort();
            let answer = inspect.get(&resource, &all, until()).await.unwrap();
            let found = listed.items.extract_if(.., |lock| lock.resource == resource).next();
            assert_eq!(found.is_some(), !expected.is_empty(), "{resource}\n{:#?}", self.log);
            for lock in [Some(answer.lock), found].into_iter().flatten() {
                let mut got: Vec<_> = lock.grants.iter().map(seen).collect();
                got.sort();
                assert_eq!(got, expected, "{resource}\n{:#?}", self.log);
                assert_eq!(lock.grants_total, expected.len(), "{resource}\n{:#?}", self.log);
            }
            let waiting = inspect.waiters(&resource, &all, until()).await.unwrap().items;
            // Waiters that have not arrived yet are missing.
            let mut queue = self.waiting.get(resource.as_str()).into_iter().flatten();
            for waiter in &waiting {
                let holder = waiter.holder.as_ref();
                let is_next = |of: &Waiting| of.attempt.holder.as_ref() == holder;
                let known = queue.find(|waiting| is_next(waiting));
                let mode = known.map(|waiting| waiting.attempt.mode);
                assert_eq!(mode, Some(waiter.mode), "{waiting:?}\n{:#?}", self.log);
            }
        }
        assert_eq!(listed.items, [], "{:#?}", self.log);
    }

    pub(super) fn compare_grants(
        &mut self,
        what: &str,
        attempt: &Attempt,
        got: &Result<Grant>,
        expected: &Result<Grant>,
    ) {
        let what = format!("{:?} {what} {}", attempt.mode, attempt.resource);
        let (got, expected) = (&self.settled(attempt, got), &self.settled(attempt, expected));
        let names = |grant: &Grant| (grant.lock_id.clone(), grant.id, grant.created);
        self.compare(
            &what,
            &got.clone().map(|g| names(&g)),
            &expected.clone().map(|g| names(&g)),
        );
        let (Ok(got), Ok(expected)) = (got, expected) else { return };
        assert!(got.ttl >= attempt.ttl.duration(), "{got:?}\n{:#?}", self.log);
        let (theirs, ours) = (got.token.unwrap().get(), expected.token.unwrap().get());
        match self.tokens.insert(ours, theirs) {
            Some(known) => assert_eq!(known, theirs, "a token changed\n{:#?}", self.log),
            None => {
                let newest = (theirs, attempt.mode);
                let before = self.newest.insert(attempt.resource.as_str().to_owned(), newest);
                let rises = before.is_none_or(|(before, mode)| {
                    let both_share = (mode, attempt.mode) == (Mode::Shared, Mode::Shared);
                    before < theirs || both_share && before == theirs
                });
                assert!(rises, "{before:?} then {newest:?}\n{:#?}", self.log);
            }
        }
    }

    /// The answer without what the protocol leaves open: which of several readers a refusal
    /// shows, and which field a replay names if two differ.
    fn settled(&self, attempt: &Attempt, answer: &Result<Grant>) -> Result<Grant> {
        unworded(answer.clone()).map_err(|error| match error {
            BackendError::Locked { by: Some(GrantView { holder, mode, .. }) } => {
                let held = self.model.held(attempt.resource.as_str());
                let is_reader = held
                    .iter()
                    .any(|held| held.by().mode == Mode::Shared && held.by().holder == holder);
                let holder = holder.filter(|_| !is_reader);
                BackendError::Locked {
                    by: Some(GrantView { holder, ..GrantView::unknown(mode) }),
                }
            }
            BackendError::ReplayMismatch { .. } if attempt.lock_id_given => {
                BackendError::ReplayMismatch { field: "" }
            }
            error => error,
        })
    }

    pub(super) fn compare<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &str,
        got: &Result<T>,
        expected: &Result<T>,
    ) {
        self.log.push(format!("{what}: {got:?}"));
        assert_eq!(got, expected, "{what}, after\n{:#?}", self.log);
    }
}

/// The public facts of a grant, in the order in which they are compared.
type Seen = (Option<GrantId>, Option<String>, bool);

fn seen(grant: &GrantView) -> Seen {
    let holder = grant.holder.as_ref().map(|holder| holder.as_str().to_owned());
    (grant.id, holder, grant.mode == Mode::Shared)
}

fn seen_of(by: &Attempt) -> Seen {
    let holder = by.holder.as_ref().map(|holder| holder.as_str().to_owned());
    (Some(by.id.into()), holder, by.mode == Mode::Shared)
}
