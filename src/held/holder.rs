//! Who has a held lock, as far as this process knows.

use tokio::sync::oneshot;

use super::HoldEnd;

/// Who has a held lock. It decides what happens when the guard of the lock is dropped.
///
/// ```text
///   hold ──▶ Unanswered ── the answer is written ──▶ Received
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
    /// A caller without a stream, whose answer was written.
    Received,
    /// A stream, which is notified of the end of its lock.
    Stream(oneshot::Sender<HoldEnd>),
}

impl Holder {
    /// The answer of a caller without a stream was written.
    pub(super) fn received(&mut self) {
        if matches!(self, Self::Unanswered) {
            *self = Self::Received;
        }
    }

    /// A repeated request of `again` was granted the same lock.
    pub(super) fn replayed(&mut self, again: Self) {
        if matches!((&self, &again), (Self::Stream(_), _) | (_, Self::Stream(_))) {
            std::mem::replace(self, again).notify(HoldEnd::Superseded);
        }
    }

    /// The lock is left to its TTL. A stream ends, and the drop of its guard releases
    /// nothing.
    pub(super) fn detached(&mut self) {
        if matches!(self, Self::Stream(_)) {
            self.notify(HoldEnd::Detached);
        }
    }

    /// Whether a caller has the lock, so that dropping the guard does not release it.
    pub(super) fn has_received(&self) -> bool {
        matches!(self, Self::Received)
    }

    /// Notifies a stream of the end of its lock; called once. Returns whether there is a
    /// stream.
    pub(super) fn notify(&mut self, ended: HoldEnd) -> bool {
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

    fn stream() -> (Holder, oneshot::Receiver<HoldEnd>) {
        let (sender, end) = oneshot::channel();
        (Holder::Stream(sender), end)
    }

    #[test]
    fn a_guard_releases_what_nobody_has_received() {
        let mut holder = Holder::Unanswered;
        assert!(!holder.has_received());
        holder.received();
        assert!(holder.has_received());
        assert!(!stream().0.has_received());
    }

    #[test]
    fn a_stream_that_is_detached_ends_and_leaves_the_lock() {
        let (mut holder, mut end) = stream();
        holder.detached();
        assert_eq!(end.try_recv(), Ok(HoldEnd::Detached));
        assert!(holder.has_received());
        let mut unanswered = Holder::Unanswered;
        unanswered.detached();
        assert!(!unanswered.has_received());
    }

    #[test]
    fn a_repeated_request_takes_over_from_a_stream() {
        let (mut holder, mut end) = stream();
        holder.replayed(Holder::Unanswered);
        assert_eq!(end.try_recv(), Ok(HoldEnd::Superseded));
        assert!(!holder.has_received());
    }

    #[test]
    fn a_repeated_request_leaves_a_received_lock_received() {
        let mut holder = Holder::Received;
        holder.replayed(Holder::Unanswered);
        assert!(holder.has_received());
        holder.replayed(stream().0);
        assert!(!holder.has_received());
    }
}
