//! What a connection has written, for those who must know that it has.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// The writes of one connection; travels with each of its requests. Cheap to
/// clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    count: AtomicU64,
    /// At most one for each open stream.
    waiting: Mutex<Vec<Waker>>,
}

impl Writes {
    /// Notes what came of a write to the socket.
    pub(super) fn note(&self, written: &Poll<io::Result<usize>>) {
        if matches!(written, Poll::Ready(Ok(_))) {
            self.0.count.fetch_add(1, Ordering::SeqCst);
            let waiting = std::mem::take(
                &mut *self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner),
            );
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// How many there were so far.
    pub(super) fn count(&self) -> u64 {
        self.0.count.load(Ordering::SeqCst)
    }

    /// Ready once there were more than `count`.
    pub(super) fn poll_more_than(&self, count: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.count() > count {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_write_wakes_who_waits_for_it() {
        let writes = Writes::default();
        let count = writes.count();
        let waiting = tokio::spawn({
            let writes = writes.clone();
            poll_fn(move |context| writes.poll_more_than(count, context))
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        writes.note(&Poll::Ready(Ok(1)));
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn a_failed_write_is_none() {
        let writes = Writes::default();
        writes.note(&Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())));
        writes.note(&Poll::Pending);
        assert_eq!(writes.count(), 0);
    }
}
