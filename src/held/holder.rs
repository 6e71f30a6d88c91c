//! Who has a held lock, as far as this process knows.

use tokio::sync::oneshot;

use super::Ended;

/// Who has a held lock. It decides what happens when the guard of the lock is dropped.
///
/// ```text
///   hold ──▶ Unanswered ── found() ──▶ Found
///               │                        │
///               └── the answer is ───────┴──▶ Received
///                   written
///
///   hold_for_stream ──▶ Stream
///
///   a repeated request: any state ── over a stream ────────▶ Stream
///                       Stream ───── without a stream ─────▶ Unanswered
///                       otherwise the state stays
///
///   the app detaches it:  Stream ──▶ Received
/// ```
#[derive(Debug)]
pub(super) enum Holder {
    /// A caller without a stream, whose answer is not written yet.
    Unanswered,
    /// The same, but an earlier request made the grant, and this one only found it.
    Found,
    /// A caller without a stream, whose answer was written.
    Received,
    /// A stream, which is told how its lock ends.
    Stream(oneshot::Sender<Ended>),
}

/// What to do with a lock whose guard was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDrop {
    /// Nothing: a caller has received it.
    Keep,
    /// Stop renewing it. Another process, or nobody, may hold it, so it is not for this
    /// process to release.
    LeaveToTtl,
    /// Release it.
    Release,
}

impl Holder {
    /// The caller's grant turned out to be an earlier request's.
    pub(super) fn found(&mut self) {
        if matches!(self, Self::Unanswered) {
            *self = Self::Found;
        }
    }

    /// The answer of a caller without a stream was written.
    pub(super) fn received(&mut self) {
        if matches!(self, Self::Unanswered | Self::Found) {
            *self = Self::Received;
        }
    }

    /// A repeated request of `again` was granted the same lock.
    pub(super) fn replayed(&mut self, again: Self) {
        if matches!((&self, &again), (Self::Stream(_), _) | (_, Self::Stream(_))) {
            std::mem::replace(self, again).tell(Ended::Superseded);
        }
    }

    /// The lock is left to its TTL. A stream ends, and the drop of its guard releases
    /// nothing.
    pub(super) fn detached(&mut self) {
        if matches!(self, Self::Stream(_)) {
            self.tell(Ended::Detached);
        }
    }

    /// What to do when the guard is dropped.
    pub(super) fn on_drop(&self) -> OnDrop {
        match self {
            Self::Received => OnDrop::Keep,
            Self::Found => OnDrop::LeaveToTtl,
            Self::Unanswered | Self::Stream(_) => OnDrop::Release,
        }
    }

    /// Tells a stream how its lock ended, which is called once. Returns whether there is a
    /// stream.
    pub(super) fn tell(&mut self, ended: Ended) -> bool {
        let Self::Stream(stream) = std::mem::replace(self, Self::Received) else {
            return false;
        };
        // Nobody listens if the stream ends at the same time.
        let _ = stream.send(ended);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> (Holder, oneshot::Receiver<Ended>) {
        let (tell, told) = oneshot::channel();
        (Holder::Stream(tell), told)
    }

    #[test]
    fn a_guard_releases_what_nobody_has_received() {
        let mut holder = Holder::Unanswered;
        assert_eq!(holder.on_drop(), OnDrop::Release);
        holder.received();
        assert_eq!(holder.on_drop(), OnDrop::Keep);
        let mut found = Holder::Unanswered;
        found.found();
        assert_eq!(found.on_drop(), OnDrop::LeaveToTtl);
        found.received();
        assert_eq!(found.on_drop(), OnDrop::Keep);
        assert_eq!(stream().0.on_drop(), OnDrop::Release);
    }

    #[test]
    fn a_stream_that_is_detached_ends_and_leaves_the_lock() {
        let (mut holder, mut told) = stream();
        holder.detached();
        assert_eq!(told.try_recv(), Ok(Ended::Detached));
        assert_eq!(holder.on_drop(), OnDrop::Keep);
        let mut unanswered = Holder::Unanswered;
        unanswered.detached();
        assert_eq!(unanswered.on_drop(), OnDrop::Release);
    }

    #[test]
    fn a_repeated_request_takes_over_from_a_stream() {
        let (mut holder, mut told) = stream();
        holder.replayed(Holder::Unanswered);
        assert_eq!(told.try_recv(), Ok(Ended::Superseded));
        assert_eq!(holder.on_drop(), OnDrop::Release);
    }

    #[test]
    fn a_repeated_request_leaves_a_received_lock_received() {
        let mut holder = Holder::Received;
        holder.replayed(Holder::Unanswered);
        assert_eq!(holder.on_drop(), OnDrop::Keep);
        holder.replayed(stream().0);
        assert_eq!(holder.on_drop(), OnDrop::Release);
    }

    /// A stream took over before the first caller was known to have only found the
    /// grant: the end of the stream still releases the lock.
    #[test]
    fn a_stream_that_took_over_is_not_marked_as_found() {
        let mut holder = Holder::Unanswered;
        holder.replayed(stream().0);
        holder.found();
        assert_eq!(holder.on_drop(), OnDrop::Release);
    }
}
