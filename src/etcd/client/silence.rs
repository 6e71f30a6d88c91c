//! Detects a peer that does not answer.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The time of the last answer over a connection or a stream.
#[derive(Debug)]
pub(crate) struct LastAnswer(Mutex<Instant>);

impl LastAnswer {
    /// The state of a connection that is opened now.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// Records an answer.
    pub(crate) fn note(&self) {
        *self.0.lock() = Instant::now();
    }

    /// When the last answer came.
    pub(crate) fn at(&self) -> Instant {
        *self.0.lock()
    }

    /// Waits until no answer has come for `silence_max`, counted from `sent` or from the last
    /// answer after it.
    pub(crate) async fn silence(&self, sent: Instant, silence_max: Duration) {
        let mut since = sent;
        loop {
            sleep_until(since + silence_max).await;
            let last = self.at();
            if last <= since {
                return;
            }
            since = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    const SILENCE_MAX: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_no_silence_while_others_arrive() {
        let last_answer = LastAnswer::new();
        let sent = Instant::now();
        let others = async {
            for _ in 0..10 {
                sleep(Duration::from_millis(1_500)).await;
                last_answer.note();
            }
        };
        tokio::select! {
            () = last_answer.silence(sent, SILENCE_MAX) => panic!("others were answered"),
            () = others => {}
        }
        let last = Instant::now();
        last_answer.silence(sent, SILENCE_MAX).await;
        assert_eq!(last.elapsed(), SILENCE_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_before_the_request_was_sent_does_not_count() {
        let last_answer = LastAnswer::new();
        sleep(SILENCE_MAX).await;
        let silence = last_answer.silence(Instant::now(), SILENCE_MAX);
        let before_its_time = timeout(SILENCE_MAX - Duration::from_millis(1), silence).await;
        assert!(before_its_time.is_err());
    }
}
