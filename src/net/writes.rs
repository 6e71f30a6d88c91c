//! Tells when a connection has written a response.
//!
//! A transport flushes its socket only after it has written everything that it had
//! queued, so flushes are counted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use http::Version;
use parking_lot::{Mutex, MutexGuard};

/// Called once everything that was queued has been written. Dropped without a call if the
/// connection ends before that.
type Kept = Box<dyn FnOnce() + Send>;

/// The writes of one connection. Each of its requests carries them in its extensions. Cheap
/// to clone.
#[derive(Clone, Debug)]
pub(crate) struct Writes {
    shared: Arc<Shared>,
    is_http2: bool,
}

#[derive(Debug, Default)]
struct Shared {
    flushes: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// At most one for each open stream.
    wakers: Vec<Waker>,
    /// At most one for a connection that answers one call at a time.
    kept: Vec<Kept>,
    closed: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl Default for Writes {
    fn default() -> Self {
        Self { shared: Arc::default(), is_http2: true }
    }
}

impl Writes {
    /// The same writes, for a request of this HTTP version.
    pub(crate) fn of(&self, version: Version) -> Self {
        Self { is_http2: version == Version::HTTP_2, ..self.clone() }
    }

    /// Whether the transport takes responses before it writes them, and drops them if the
    /// caller cancels first.
    pub(super) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Notes that everything that was queued has been written.
    pub(super) fn note_flush(&self) {
        self.shared.flushes.fetch_add(1, Ordering::SeqCst);
        let (wakers, kept) = {
            let mut waiting = self.waiting();
            (std::mem::take(&mut waiting.wakers), std::mem::take(&mut waiting.kept))
        };
        kept.into_iter().for_each(|keep| keep());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How many flushes there were so far.
    pub(super) fn flushes(&self) -> u64 {
        self.shared.flushes.load(Ordering::SeqCst)
    }

    /// Ready once `is_written` returns true. It is called again after every flush.
    pub(super) fn poll_until(
        &self,
        is_written: impl Fn() -> bool,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut waiting = self.waiting();
        if is_written() {
            return Poll::Ready(());
        }
        if !waiting.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Calls `keep` at the next flush, or drops it if the connection ends first.
    pub(super) fn at_flush(&self, keep: Kept) {
        let mut waiting = self.waiting();
        if !waiting.closed {
            waiting.kept.push(keep);
        }
    }

    /// Notes that nothing more will be written.
    pub(super) fn close(&self) {
        let kept = {
            let mut waiting = self.waiting();
            waiting.closed = true;
            std::mem::take(&mut waiting.kept)
        };
        drop(kept);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.shared.waiting.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::net::connection::Connection;

    #[tokio::test]
    async fn a_callback_is_called_at_the_next_flush_and_dropped_with_the_connection() {
        let kept = |writes: &Writes| {
            let kept = Arc::new(AtomicBool::new(false));
            let keeping = Arc::clone(&kept);
            writes.at_flush(Box::new(move || keeping.store(true, Ordering::SeqCst)));
            kept
        };
        let mut stream = Connection::accepted(tokio::io::sink(), 0);
        let writes = stream.writes();
        let first = kept(&writes);
        stream.flush().await.unwrap();
        assert!(first.load(Ordering::SeqCst));
        let second = kept(&writes);
        drop(stream);
        let third = kept(&writes);
        for lost in [second, third] {
            assert!(!lost.load(Ordering::SeqCst) && Arc::strong_count(&lost) == 1);
        }
    }
}
