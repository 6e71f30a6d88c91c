//! Who has a held lock, as far as this process knows.

use tokio::sync::oneshot;

use super::HoldEnd;

/// Who has a held lock. It decides what happens when the guard of the lock is dropped.
///
/// ```text
///   hold ──▶ Received        hold_for_stream ──▶ Stream
///
///   a repeated request is answered:  any state ── with or without a stream ──▶ Stream, Received
///
///   the app detaches it:             Stream ──▶ Received
///
///   it would be released, but requests in flight may be answered with it:
///                                    any state ──▶ Nobody
/// ```
#[derive(Debug)]
pub(super) enum Keeper {
    /// A caller without a stream, whose answer was written.
    Received,
    /// A stream, which is notified of the end of its lock.
    Stream(oneshot::Sender<HoldEnd>),
    /// No caller, but requests in flight may be answered with the lock.
    Nobody,
}

impl Keeper {
    /// A repeated request of `again` was answered with the same lock.
    pub(super) fn replayed(&mut self, again: Self) {
        std::mem::replace(self, again).notify(HoldEnd::Superseded);
    }

    /// The lock is left to its TTL. A stream ends, and the drop of its guard releases
    /// nothing.
    pub(super) fn detached(&mut self) {
        if matches!(self, Self::Stream(_)) {
            self.notify(HoldEnd::Detached);
        }
    }

    /// Whether the drop of a guard releases the lock.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Whether no caller has the lock.
    pub(super) fn is_nobody(&self) -> bool {
        matches!(self, Self::Nobody)
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

    fn stream() -> (Keeper, oneshot::Receiver<HoldEnd>) {
        let (sender, end) = oneshot::channel();
        (Keeper::Stream(sender), end)
    }

    #[test]
    fn a_stream_that_is_detached_ends_and_leaves_the_lock() {
        let (mut keeper, mut end) = stream();
        keeper.detached();
        assert_eq!(end.try_recv(), Ok(HoldEnd::Detached));
        assert!(!keeper.is_stream());
    }

    #[test]
    fn a_repeated_request_takes_over() {
        let (mut keeper, mut end) = stream();
        keeper.replayed(Keeper::Received);
        assert_eq!(end.try_recv(), Ok(HoldEnd::Superseded));
        assert!(!keeper.is_stream());
        keeper.replayed(stream().0);
        assert!(keeper.is_stream());
        let mut left = Keeper::Nobody;
        left.replayed(Keeper::Received);
        assert!(!left.is_nobody());
    }
}
