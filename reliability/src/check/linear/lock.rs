//! The lock object: its states, and how each step changes them.

use super::search::Object;

/// The state of the lock object at one instant.
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
        /// The step that last started its TTL.
        term: usize,
    },
    /// A fault replaced the grant by something that is no grant.
    Foreign,
    /// The state is unknown after a fault.
    Anything,
}

/// The names of a grant, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Named {
    pub(super) grant: usize,
    pub(super) lock_id: Option<usize>,
    pub(super) request_id: Option<usize>,
}

/// What can happen to the lock object.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// A grant was made or found, and the client was told.
    Acquire { named: Named, token: i64, term: usize },
    /// A grant was made or found, and no client was told.
    AcquireUnseen { named: Named, term: usize },
    /// The holder with this lock ID renewed.
    Renew { lock_id: usize, term: usize },
    /// The holder with this lock ID unlocked.
    Unlock { lock_id: usize },
    /// The lock ID did not hold; whether somebody else did, if the answer says so.
    NotHeld { lock_id: usize, other_holds: Option<bool> },
    /// A try was refused while nobody waited.
    Locked,
    /// The holder was unlocked by force.
    Force,
    /// A forced unlock saw a holder; something else may have ended the grant.
    Aimed,
    /// The lock ID does not hold any more; something else may have ended its grant.
    Over { lock_id: usize },
    /// A forced unlock found no holder.
    ForceNotHeld,
    /// The TTL that this step started is over.
    Expire { term: usize },
    /// leasehold undid what nobody was told of.
    Undo { grant: usize },
    /// A fault may have ended the grant, and the order of tokens.
    Lose { tokens: bool },
    /// A fault may have put something of its own in the grant's place.
    Replace,
    /// What a fault put there may have gone again.
    TakeBack,
    /// A fault may have changed everything, tokens too.
    Void { tokens: bool },
}

impl Object for State {
    type Kind = Kind;

    fn only_looks(kind: &Kind) -> bool {
        matches!(
            kind,
            Kind::NotHeld { .. }
                | Kind::Locked
                | Kind::ForceNotHeld
                | Kind::Aimed
                | Kind::Over { .. }
        )
    }

    fn step(&self, kind: &Kind) -> Option<Self> {
        use Holder::{Anything, Foreign, Free, Held};
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
                    Foreign => return None,
                    Anything if named.request_id.is_some() && token <= self.last_token => {
                        return to(Held { grant: named, term });
                    }
                    _ => {}
                }
                (token > self.last_token)
                    .then_some(Self { holder: Held { grant: named, term }, last_token: token })
            }
            Kind::AcquireUnseen { named, term } => match self.holder {
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
                    Foreign => other_holds != Some(false),
                    Held { grant, .. } => {
                        grant.lock_id != Some(lock_id) && other_holds != Some(false)
                    }
                    Anything => true,
                };
                fits.then(|| self.clone())
            }
            Kind::Locked | Kind::Aimed => (self.holder != Free).then(|| self.clone()),
            Kind::Force => (self.holder != Free).then_some(()).and_then(|()| to(Free)),
            Kind::Over { lock_id } => {
                let holds = matches!(self.holder, Held { grant, .. }
                    if grant.lock_id == Some(lock_id));
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
            Kind::Lose { tokens } => match self.holder {
                _ if tokens => Some(Self { holder: Free, last_token: 0 }),
                Held { .. } => to(Free),
                _ => None,
            },
            Kind::Replace => match self.holder {
                Held { .. } => to(Foreign),
                _ => None,
            },
            Kind::TakeBack => match self.holder {
                Foreign => to(Free),
                _ => None,
            },
            Kind::Void { tokens } => {
                let last_token = if tokens { 0 } else { self.last_token };
                Some(Self { holder: Anything, last_token })
            }
        }
    }
}
