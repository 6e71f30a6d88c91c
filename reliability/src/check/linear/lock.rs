//! The lock object, and a history as steps on it.

use std::collections::HashMap;

use super::{
    super::{Surroundings, grants::safe_ns, resource::ResourceHistory},
    search::{Object, Step},
};
use crate::{
    faults::Voids,
    history::{Call, Operation, Outcome},
};

/// What the lock object is at an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    holder: Holder,
    last_token: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Holder {
    #[default]
    Free,
    Held {
        grant: Named,
        /// What started its TTL last.
        term: usize,
    },
    /// A fault left nobody knows what.
    Anything,
}

/// A grant by its names, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Named {
    grant: usize,
    lock_id: Option<usize>,
    request_id: Option<usize>,
}

/// What can happen to it.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// A grant was told.
    Acquire { named: Named, token: i64, term: usize },
    /// A grant was made, or found again, that nobody was told of.
    AcquireUntold { named: Named, term: usize },
    /// Whoever has the lock ID renewed.
    Renew { lock_id: usize, term: usize },
    /// Whoever has the lock ID unlocked.
    Unlock { lock_id: usize },
    /// The lock ID held nothing, and somebody else did or did not.
    NotHeld { lock_id: usize, other_holds: Option<bool> },
    /// A try was refused, and nobody waited.
    Locked,
    /// Whoever held no longer does.
    Force,
    /// The lock ID does not hold: somebody saw to it. Of a force it says nothing.
    Over { lock_id: Option<usize> },
    /// Nobody held.
    ForceNotHeld,
    /// The TTL that this started is over.
    Expire { term: usize },
    /// leasehold undid what nobody was told of.
    Undo { grant: usize },
    /// A fault may have ended the grant.
    Lose,
    /// A fault may have changed everything, tokens too.
    Void { tokens: bool },
}

impl Object for State {
    type Kind = Kind;

    fn only_looks(kind: &Kind) -> bool {
        matches!(
            kind,
            Kind::NotHeld { .. } | Kind::Locked | Kind::ForceNotHeld | Kind::Over { .. }
        )
    }

    fn step(&self, kind: &Kind) -> Option<Self> {
        use Holder::{Anything, Free, Held};
        let to = |holder| Some(Self { holder, last_token: self.last_token });
        match (*kind).clone() {
            Kind::Acquire { named, token, term } => {
                let finds = |grant: Named| {
                    named.request_id.is_some() && grant.request_id == named.request_id
                };
                match self.holder {
                    Held { grant, .. } if grant.grant == named.grant && finds(grant) => {
                        return to(Held { grant, term });
                    }
                    Held { grant, .. } if !finds(grant) => return None,
                    Anything if named.request_id.is_some() && token <= self.last_token => {
                        return to(Held { grant: named, term });
                    }
                    _ => {}
                }
                (token > self.last_token)
                    .then_some(Self { holder: Held { grant: named, term }, last_token: token })
            }
            Kind::AcquireUntold { named, term } => match self.holder {
                Free => to(Held { grant: named, term }),
                Held { grant, .. }
                    if named.request_id.is_some() && grant.request_id == named.request_id =>
                {
                    to(Held { grant, term })
                }
                _ => None,
            },
            Kind::Renew { lock_id, term } => match self.holder {
                Held { grant, .. } if grant.lock_id == Some(lock_id) => {
                    to(Held { grant, term })
                }
                Anything => to(Anything),
                _ => None,
            },
            Kind::Unlock { lock_id } => match self.holder {
                Held { grant, .. } if grant.lock_id == Some(lock_id) => to(Free),
                Anything => to(Free),
                _ => None,
            },
            Kind::NotHeld { lock_id, other_holds } => {
                let fits = match self.holder {
                    Free => other_holds != Some(true),
                    Held { grant, .. } => {
                        grant.lock_id != Some(lock_id) && other_holds != Some(false)
                    }
                    Anything => true,
                };
                fits.then(|| self.clone())
            }
            Kind::Locked => (self.holder != Free).then(|| self.clone()),
            Kind::Force => (self.holder != Free).then_some(()).and_then(|()| to(Free)),
            Kind::Over { lock_id } => {
                let holds = match self.holder {
                    Held { grant, .. } => lock_id.is_some() && grant.lock_id == lock_id,
                    Free | Anything => false,
                };
                (!holds).then(|| self.clone())
            }
            Kind::ForceNotHeld => matches!(self.holder, Free | Anything).then(|| self.clone()),
            Kind::Expire { term: over } => match self.holder {
                Held { term, .. } if term == over => to(Free),
                _ => None,
            },
            Kind::Undo { grant: undone } => match self.holder {
                Held { grant, .. } if grant.grant == undone => to(Free),
                _ => None,
            },
            Kind::Lose => match self.holder {
                Held { .. } => to(Free),
                _ => None,
            },
            Kind::Void { tokens } => {
                let last_token = if tokens { 0 } else { self.last_token };
                Some(Self { holder: Anything, last_token })
            }
        }
    }
}

/// The history of a resource as steps, by their begin.
pub(super) fn steps(
    history: &ResourceHistory<'_>,
    surroundings: Surroundings<'_>,
) -> Vec<Step<Kind>> {
    let mut numbers = Numbers::default();
    for (number, grant) in history.grants.iter().enumerate() {
        for acquisition in &grant.acquisitions {
            numbers.grants.insert(acquisition.invocation.id, number);
        }
    }
    let mut steps = Vec::new();
    for (place, operation) in history.operations.iter().enumerate() {
        of_call(history, surroundings, operation, place, &mut numbers, &mut steps);
    }
    for fault in surroundings.faults {
        let kind = match &fault.voids {
            Voids::Nothing => continue,
            Voids::GrantOf(resource) if resource == history.name => Kind::Lose,
            Voids::GrantOf(_) => continue,
            Voids::Grants => Kind::Void { tokens: false },
            Voids::GrantsAndTokens => Kind::Void { tokens: true },
        };
        let (from_ns, until_ns) = (fault.from_ns, fault.until_ns);
        steps.push(Step { kind, from_ns, until_ns, is_optional: true, call: None });
    }
    steps.sort_by_key(|step| step.from_ns);
    steps
}

/// Names as numbers, which are quick to compare and to remember.
#[derive(Default)]
struct Numbers<'a> {
    strings: HashMap<&'a str, usize>,
    /// The grant that a call was answered with.
    grants: HashMap<u64, usize>,
}

impl<'a> Numbers<'a> {
    fn of(&mut self, name: &'a str) -> usize {
        let next = self.strings.len();
        *self.strings.entry(name).or_insert(next)
    }
}

fn of_call<'a>(
    history: &ResourceHistory<'_>,
    surroundings: Surroundings<'_>,
    operation: &'a Operation,
    place: usize,
    numbers: &mut Numbers<'a>,
    steps: &mut Vec<Step<Kind>>,
) {
    let is_optional = operation.known().is_none();
    let (from_ns, until_ns) = (operation.invoked_ns(), operation.completed_ns());
    let mut push = |kind| {
        let call = Some(operation.invocation.id);
        steps.push(Step { kind, from_ns, until_ns, is_optional, call });
    };
    let mut is_retried = false;
    // An unlock whose first reply was lost is answered with success once the
    // grant is over, whoever ended it meanwhile.
    let is_troubled = !surroundings.calm(from_ns, until_ns);
    let mut also = None;
    let started_ttl_ns = match (&operation.invocation.call, operation.known()) {
        (Call::Try(asked) | Call::Lock { acquisition: asked, .. }, outcome) => {
            let request_id = asked.request_id.as_deref().map(|id| numbers.of(id));
            match outcome {
                Some(Outcome::Granted(granted)) => {
                    let lock_id = Some(numbers.of(&granted.lock_id));
                    let grant = numbers.grants[&operation.invocation.id];
                    let named = Named { grant, lock_id, request_id };
                    push(Kind::Acquire { named, token: granted.token, term: place });
                    is_retried = granted.waited_ns >= granted.ttl_ns
                        && !surroundings.calm(from_ns, until_ns);
                    // What was handed over to a waiter may be forced away
                    // before it is told; it then waits on.
                    is_retried |= history.forces().any(|force| {
                        force.invoked_ns() <= until_ns && force.completed_ns() >= from_ns
                    });
                    Some(granted.waited_ns + safe_ns(granted.ttl_ns))
                }
                Some(Outcome::Locked) => {
                    if !perhaps_waited_for(history, operation) {
                        push(Kind::Locked);
                    }
                    None
                }
                Some(_) => None,
                None => {
                    let lock_id = asked.lock_id.as_deref().map(|id| numbers.of(id));
                    // Those without a name are all alike.
                    let number = if lock_id.or(request_id).is_some() { place + 1 } else { 0 };
                    let grant = usize::MAX - number;
                    let named = Named { grant, lock_id, request_id };
                    let term = if number > 0 { place } else { grant };
                    push(Kind::AcquireUntold { named, term });
                    push(Kind::Undo { grant });
                    request_id.map(|_| safe_ns(asked.ttl_ms.max(100) * 1_000_000))
                }
            }
        }
        (Call::Renew { lock_id, ttl_ms }, outcome) => {
            let lock_id = numbers.of(lock_id);
            match outcome {
                Some(Outcome::Renewed { ttl_ns }) => {
                    push(Kind::Renew { lock_id, term: place });
                    Some(safe_ns(*ttl_ns))
                }
                Some(Outcome::NotHeld { held }) => {
                    push(Kind::NotHeld { lock_id, other_holds: *held });
                    None
                }
                Some(_) => None,
                None => {
                    push(Kind::Renew { lock_id, term: place });
                    Some(safe_ns(ttl_ms.max(&100) * 1_000_000))
                }
            }
        }
        (Call::Unlock { lock_id } | Call::UnlockWrong { lock_id }, outcome) => {
            let lock_id = numbers.of(lock_id);
            match outcome {
                Some(Outcome::NotHeld { held }) => {
                    push(Kind::NotHeld { lock_id, other_holds: *held });
                }
                Some(Outcome::Unlocked) if is_troubled => {
                    push(Kind::Over { lock_id: Some(lock_id) });
                    also = Some(Kind::Unlock { lock_id });
                }
                Some(Outcome::Unlocked) | None => push(Kind::Unlock { lock_id }),
                Some(_) => {}
            }
            None
        }
        (Call::Force, outcome) => {
            match outcome {
                Some(Outcome::NotHeld { .. }) => push(Kind::ForceNotHeld),
                Some(Outcome::Unlocked) if is_troubled => {
                    push(Kind::Over { lock_id: None });
                    also = Some(Kind::Force);
                }
                Some(Outcome::Unlocked) | None => push(Kind::Force),
                Some(_) => {}
            }
            None
        }
    };
    if let Some(kind) = also {
        let call = Some(operation.invocation.id);
        steps.push(Step { kind, from_ns, until_ns, is_optional: true, call });
    }
    let mut perhaps = |kind, from_ns| {
        let (until_ns, is_optional, call) = (u64::MAX, true, None);
        steps.push(Step { kind, from_ns, until_ns, is_optional, call });
    };
    if is_retried {
        // The reply to its first try may have been lost, and the grant of that
        // been over before the second.
        let grant = usize::MAX;
        let named = Named { grant, lock_id: None, request_id: None };
        perhaps(Kind::AcquireUntold { named, term: grant }, from_ns);
        perhaps(Kind::Undo { grant }, from_ns);
    }
    if let Some(ttl_ns) = started_ttl_ns {
        perhaps(Kind::Expire { term: place }, from_ns.saturating_add(ttl_ns));
    }
}

/// Whether a waiter can have been in the queue while the try was under way.
fn perhaps_waited_for(history: &ResourceHistory<'_>, operation: &Operation) -> bool {
    history.waits().any(|wait| {
        wait.invoked_ns() <= operation.completed_ns()
            && wait.completed_ns() >= operation.invoked_ns()
    })
}
