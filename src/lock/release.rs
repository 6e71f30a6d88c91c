//! The port's releases: which grant one ends, however often it is tried.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Attempt, AttemptId, FencingToken, GrantId, LockId, ResourceId};

/// Asks to end a grant, or an attempt at whatever stage it is.
///
/// One value is used for all tries of a release, so that its [`Target`] stays what an earlier
/// try fixed.
#[derive(Debug)]
pub struct Release {
    /// What is locked.
    pub resource: ResourceId,
    /// Whose grant it ends.
    pub of: ReleaseOf,
    /// The grant that the lock ID of a [`ReleaseOf::Owner`] named when this process last got
    /// or renewed it. It may have ended, and another may have the lock ID now. `None` if
    /// leasehold made the lock ID, because no other grant ever has it, or if it is not known.
    pub known: Option<GrantId>,
    /// What it ends, if `of` alone does not say that for all times.
    pub target: Target,
}

impl Release {
    /// A release that has not been tried yet.
    #[must_use]
    pub fn new(resource: ResourceId, of: ReleaseOf) -> Self {
        Self { resource, of, known: None, target: Target::default() }
    }

    /// Whether nothing was sent that could end a grant, and another try could end a grant
    /// that was made since.
    pub(super) fn is_open(&self) -> bool {
        let names_none = matches!(self.of, ReleaseOf::Owner(_) | ReleaseOf::Anyone);
        names_none && self.target.fixed().is_none()
    }
}

/// Whose grant a [`Release`] ends.
#[derive(Clone, Debug)]
pub enum ReleaseOf {
    /// The grant with this lock ID.
    Owner(LockId),
    /// The grant with this lock ID and this token, and no other with the lock ID. A backend
    /// that cannot compare the token answers
    /// [`BackendError::Unsupported`](super::BackendError::Unsupported).
    Token(LockId, FencingToken),
    /// The grant with this lock ID, if this attempt was the last that got it: it made the
    /// grant and no replay has claimed it since, or it is the last replay that claimed it. A
    /// backend that cannot compare that ends the grant with this lock ID.
    Claim(LockId, AttemptId),
    /// The grants of all holders: force.
    Anyone,
    /// The grant with this public ID, whoever holds it: force. Only with
    /// [`Feature::Inspection`](super::Feature::Inspection).
    Id(GrantId),
    /// What this attempt created, and its place in the queue if it waits. A
    /// grant that a replay has claimed since is no longer this attempt's. If nothing of
    /// it is left, [`BackendError::NotHeld`](super::BackendError::NotHeld), which counts as
    /// settled.
    Attempt(Arc<Attempt>),
}

/// The grant that a release by [`ReleaseOf::Owner`] or [`ReleaseOf::Anyone`] ends, in a text of
/// the backend's own.
///
/// Another grant may have the lock ID or the resource later, and a release whose reply was lost
/// is tried again, perhaps much later (trap 21). So the backend fixes the target before it
/// sends anything that could end a grant: a grant ID, for example, or the newest token of all
/// grants that there are. From then on it ends only that.
///
/// An example: a force reads that grant 7 holds the resource, fixes `7`, and sends its end. The
/// reply is lost. Meanwhile the holder unlocks, and the next caller is granted 8. The domain
/// repeats the same [`Release`], whose target is still 7, so the backend leaves 8 alone.
///
/// While the target is open, nothing that could end a grant was sent: a call that ends then has
/// failed as [`BackendError::Unavailable`](super::BackendError::Unavailable), and the domain never
/// repeats it, because it might then end a grant made since.
///
/// A backend whose release is one step without a reply that can be lost, as memory's, needs no
/// target.
#[derive(Debug, Default)]
pub struct Target(Mutex<Option<Box<str>>>);

impl Target {
    /// What was fixed. At the beginning of a call this is what an earlier call may have ended;
    /// `None` if this is the first call.
    pub fn fixed(&self) -> Option<Box<str>> {
        self.0.lock().clone()
    }

    /// Fixes what is ended from now on. The first call may do that again, after an answer that
    /// shows that what was fixed had ended by itself, and what is there instead.
    ///
    /// The text must not contain a lock ID, because it is part of the release's `Debug`.
    pub fn fix(&self, text: impl Into<Box<str>>) {
        *self.0.lock() = Some(text.into());
    }
}
