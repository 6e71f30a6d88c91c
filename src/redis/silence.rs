//! Detects a connection that is silent while others work: a firewall drops its packets, or
//! its host has vanished.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::session::{Failure, Greeted, OPEN_TIMEOUT, Session};

/// How long a connection may owe an answer before it is pinged.
pub(super) const SUSPICIOUS: Duration = Duration::from_secs(1);
/// How long it may owe an answer before another connection is opened.
const SILENT: Duration = Duration::from_millis(1500);
/// How much later than the other connection it may answer.
const LEAD: Duration = Duration::from_millis(300);
/// The pause before yet another connection is tried.
const PAUSE: Duration = Duration::from_secs(1);

/// The answers that a connection owes. Redis answers the requests of a connection in order.
#[derive(Default)]
pub(super) struct Owed(Mutex<State>);

#[derive(Default)]
struct State {
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

    fn is_silent_for(&self, long: Duration) -> bool {
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

/// Returns another connection once it answers, and this one still owes an answer a little later.
/// If both are silent, the server is slow; then at most one other connection is open at a time.
pub(super) async fn outlived<D>(session: &Session, dial: impl Fn() -> D) -> Greeted
where
    D: Future<Output = Result<Greeted, Failure>>,
{
    loop {
        session.owed.silent_for(SILENT).await;
        let other = async {
            let other = dial().await.ok()?;
            other.answers().await.ok()?;
            Some(other)
        };
        let answered = timeout(OPEN_TIMEOUT, other).await;
        // A server that stood still answers on both.
        sleep(LEAD).await;
        if let Ok(Some(other)) = answered
            && session.owed.is_silent_for(SILENT + LEAD)
        {
            return other;
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

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
