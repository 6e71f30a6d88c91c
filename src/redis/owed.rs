//! How long a connection has owed an answer.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// The answers that a connection owes. Redis answers the requests of a connection in order.
#[derive(Default)]
pub(super) struct Owed(Mutex<Owing>);

#[derive(Default)]
struct Owing {
    /// How many callers wait for an answer.
    waiting: usize,
    /// When the last answer came, or else the first request was sent; `None` if no answer is
    /// owed. A request whose caller has given up is still owed an answer.
    since: Option<Instant>,
}

impl Owed {
    /// Waits for the answer to a request that is sent now.
    pub(super) async fn answer<T>(&self, answer: impl Future<Output = T>) -> T {
        let asking = Asking::begin(self);
        let answer = answer.await;
        drop(asking);
        let mut state = self.0.lock();
        state.since = (state.waiting > 0).then(Instant::now);
        answer
    }

    /// Waits until an answer has been owed for this long, and none has come in that time.
    pub(super) async fn silent_for(&self, long: Duration) {
        loop {
            let silence = self.0.lock().since.map_or(Duration::ZERO, |since| since.elapsed());
            if silence >= long {
                return;
            }
            sleep(long - silence).await;
        }
    }

    /// Whether that is so now.
    pub(super) fn is_silent_for(&self, long: Duration) -> bool {
        self.0.lock().since.is_some_and(|since| since.elapsed() >= long)
    }
}

/// A caller that waits for an answer.
struct Asking<'a>(&'a Owed);

impl<'a> Asking<'a> {
    fn begin(owed: &'a Owed) -> Self {
        let mut state = owed.0.lock();
        state.waiting += 1;
        state.since.get_or_insert_with(Instant::now);
        Self(owed)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.0.lock().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::timeout;

    use super::*;

    const SUSPICIOUS: Duration = Duration::from_secs(1);

    /// Trap: redis 39
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_comes_late_is_no_silence_while_others_come() {
        let owed = Owed::default();
        let others = async {
            for _ in 0..5 {
                sleep(SUSPICIOUS / 2).await;
                owed.answer(ready(())).await;
            }
        };
        tokio::select! {
            () = owed.answer(pending()) => {}
            () = owed.silent_for(SUSPICIOUS) => panic!("answers came"),
            () = others => {}
        }
    }

    /// Trap: redis 39
    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_given_up_is_owed_an_answer_until_a_later_one_comes() {
        let owed = Owed::default();
        assert!(timeout(SUSPICIOUS / 2, owed.answer(pending::<()>())).await.is_err());
        owed.silent_for(SUSPICIOUS).await;
        owed.answer(ready(())).await;
        assert!(timeout(4 * SUSPICIOUS, owed.silent_for(SUSPICIOUS)).await.is_err());
    }
}
