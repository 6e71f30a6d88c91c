//! The lock object: its states, and how each step changes them.

use super::search::Object;
use crate::history::Mode;

/// The state of the lock object at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    holder: Holder,
    /// The greatest token of an exclusive grant.
    written: i64,
    /// The greatest token of a shared grant.
    read: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum Holder {
    #[default]
    Free,
    /// An exclusive grant.
    Held(Live),
    /// Shared grants, at least one, sorted.
    Readers(Vec<Live>),
    /// A fault replaced the grant by something that is no grant.
    Foreign,
    /// The state is unknown after a fault.
    Anything,
}

/// A live grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Live {
    grant: Named,
    /// The step that last started its TTL.
    term: usize,
}

/// The names of a grant, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Named {
    pub(super) grant: usize,
    pub(super) mode: Mode,
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
    /// A try in this mode, with this lock ID, was refused while nobody waited.
    Locked { mode: Mode, lock_id: Option<usize> },
    /// All holders were unlocked by force.
    Force,
    /// A forced unlock saw a holder; something else may have ended the grant.
    Aimed,
    /// The lock ID does not hold any more; something else may have ended its grant.
    Over { lock_id: usize },
    /// An end by public ID found that this grant does not hold.
    Gone { grant: usize },
    /// A forced unlock found no holder.
    ForceNotHeld,
    /// The TTL that this step started is over.
    Expire { term: usize },
    /// This grant was ended: leasehold undid what nobody was told of, somebody ended it by
    /// its public ID, or a fault did.
    Undo { grant: usize },
    /// A fault may have ended all grants, and the order of tokens.
    Lose { tokens: bool },
    /// A fault may have put something of its own in the grant's place.
    Replace,
    /// What a fault put there may have gone again.
    TakeBack,
    /// A fault may have changed everything, tokens too.
    Void { tokens: bool },
}

impl Holder {
    /// These grants hold.
    fn of(mut readers: Vec<Live>) -> Self {
        readers.sort_unstable();
        if readers.is_empty() { Self::Free } else { Self::Readers(readers) }
    }

    /// The grants that are known to hold.
    fn live(&self) -> &[Live] {
        match self {
            Self::Held(live) => std::slice::from_ref(live),
            Self::Readers(readers) => readers,
            Self::Free | Self::Foreign | Self::Anything => &[],
        }
    }

    fn find(&self, is_it: impl Fn(&Live) -> bool) -> Option<Live> {
        self.live().iter().copied().find(is_it)
    }

    fn has(&self, lock_id: usize) -> bool {
        self.find(|live| live.grant.lock_id == Some(lock_id)).is_some()
    }

    /// Without this grant, which is held.
    fn without(&self, live: Live) -> Self {
        Self::of(self.live().iter().copied().filter(|other| *other != live).collect())
    }

    /// With the TTL of this grant, which is held, started again.
    fn restarted(&self, live: Live, term: usize) -> Self {
        let again = Live { term, ..live };
        match self {
            Self::Held(_) => Self::Held(again),
            _ => {
                let others = self.live().iter().copied().filter(|other| *other != live);
                Self::of(others.chain([again]).collect())
            }
        }
    }

    /// With one more grant; `None` if another one excludes it.
    fn joined(&self, live: Live) -> Option<Self> {
        match (self, live.grant.mode) {
            (Self::Free, Mode::Exclusive) => Some(Self::Held(live)),
            (Self::Free | Self::Readers(_), Mode::Shared) => {
                let again = self.find(|other| other.grant == live.grant);
                match again {
                    Some(other) => Some(self.restarted(other, live.term)),
                    // The lock ID names one grant only.
                    None if live.grant.lock_id.is_some_and(|id| self.has(id)) => None,
                    None => Some(Self::of(self.live().iter().copied().chain([live]).collect())),
                }
            }
            _ => None,
        }
    }
}

impl Object for State {
    type Kind = Kind;

    fn only_looks(kind: &Kind) -> bool {
        matches!(
            kind,
            Kind::NotHeld { .. }
                | Kind::Locked { .. }
                | Kind::ForceNotHeld
                | Kind::Aimed
                | Kind::Over { .. }
                | Kind::Gone { .. }
        )
    }

    fn is_end(kind: &Kind) -> bool {
        matches!(kind, Kind::Expire { .. } | Kind::Undo { .. } | Kind::Unlock { .. })
    }

    fn step(&self, kind: &Kind) -> Option<Self> {
        use Holder::{Anything, Foreign, Free};
        let to = |holder| Some(Self { holder, ..self.clone() });
        match (*kind).clone() {
            Kind::Acquire { named, token, term } => self.acquire(named, token, term),
            Kind::AcquireUnseen { named, term } => {
                let holder = match self.found(named) {
                    Some(found) => self.holder.restarted(found, term),
                    None => self.holder.joined(Live { grant: named, term })?,
                };
                to(holder)
            }
            Kind::Renew { lock_id, term } => {
                if self.holder == Anything {
                    return to(Anything);
                }
                let live = self.holder.find(|live| live.grant.lock_id == Some(lock_id))?;
                to(self.holder.restarted(live, term))
            }
            Kind::Unlock { lock_id } => {
                if self.holder == Anything {
                    // It may have been one of several shared grants.
                    return to(Anything);
                }
                let live = self.holder.find(|live| live.grant.lock_id == Some(lock_id))?;
                to(self.holder.without(live))
            }
            Kind::NotHeld { lock_id, other_holds } => {
                let fits = match &self.holder {
                    Free => other_holds != Some(true),
                    Foreign => other_holds != Some(false),
                    Anything => true,
                    holder => !holder.has(lock_id) && other_holds != Some(false),
                };
                fits.then(|| self.clone())
            }
            Kind::Locked { mode, lock_id } => {
                let refuses = match &self.holder {
                    Free => false,
                    Holder::Readers(_) => {
                        mode == Mode::Exclusive || lock_id.is_some_and(|id| self.holder.has(id))
                    }
                    _ => true,
                };
                refuses.then(|| self.clone())
            }
            Kind::Aimed => (self.holder != Free).then(|| self.clone()),
            Kind::Force => (self.holder != Free).then_some(()).and_then(|()| to(Free)),
            Kind::Over { lock_id } => (!self.holder.has(lock_id)).then(|| self.clone()),
            Kind::Gone { grant } => {
                let live = self.holder.find(|live| live.grant.grant == grant);
                live.is_none().then(|| self.clone())
            }
            Kind::ForceNotHeld => matches!(self.holder, Free | Anything).then(|| self.clone()),
            Kind::Expire { term } => {
                let live = self.holder.find(|live| live.term == term)?;
                to(self.holder.without(live))
            }
            Kind::Undo { grant } => {
                if self.holder == Anything {
                    return to(Anything);
                }
                let live = self.holder.find(|live| live.grant.grant == grant)?;
                to(self.holder.without(live))
            }
            Kind::Lose { tokens: true } => Some(Self::default()),
            Kind::Lose { tokens: false } => {
                if self.holder.live().is_empty() {
                    None
                } else {
                    to(Free)
                }
            }
            Kind::Replace => {
                if self.holder.live().is_empty() {
                    None
                } else {
                    to(Foreign)
                }
            }
            Kind::TakeBack => match self.holder {
                Foreign => to(Free),
                _ => None,
            },
            Kind::Void { tokens } => {
                let tokens_kept = if tokens { Self::default() } else { self.clone() };
                Some(Self { holder: Anything, ..tokens_kept })
            }
        }
    }
}

impl State {
    /// The live grant that a request finds.
    fn found(&self, named: Named) -> Option<Live> {
        named.request_id?;
        self.holder.find(|live| {
            (live.grant.request_id, live.grant.mode) == (named.request_id, named.mode)
        })
    }

    fn acquire(&self, named: Named, token: i64, term: usize) -> Option<Self> {
        let live = Live { grant: named, term };
        let to = |holder| Some(Self { holder, ..self.clone() });
        let last = match named.mode {
            Mode::Exclusive => self.written.max(self.read),
            Mode::Shared => self.written,
        };
        let holder = match (self.found(named), &self.holder) {
            (Some(found), _) if found.grant.grant == named.grant => {
                return to(self.holder.restarted(found, term));
            }
            // What an unknown call made. It was not told its number.
            (Some(found), holder) => holder.without(found).joined(live)?,
            (None, Holder::Anything) if named.request_id.is_some() && token <= last => {
                return to(after_anything(live));
            }
            (None, Holder::Anything) => after_anything(live),
            (None, holder) => holder.joined(live)?,
        };
        if token <= last {
            return None;
        }
        Some(match named.mode {
            Mode::Exclusive => Self { holder, written: token, ..self.clone() },
            Mode::Shared => Self { holder, read: self.read.max(token), ..self.clone() },
        })
    }
}

/// Who holds after a grant was made or found in a state that is unknown. Others may hold
/// beside a shared one.
fn after_anything(live: Live) -> Holder {
    match live.grant.mode {
        Mode::Exclusive => Holder::Held(live),
        Mode::Shared => Holder::Anything,
    }
}
