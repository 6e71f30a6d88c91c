//! When the other end of a connection was last heard.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The time of the last answer over a connection.
#[derive(Debug)]
pub(crate) struct Heard(Mutex<Instant>);

impl Heard {
    /// For a connection that is opened now.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    /// Notes an answer.
    pub(crate) fn note(&self) {
        *self.0.lock() = Instant::now();
    }

    /// When the last answer came.
    pub(crate) fn last(&self) -> Instant {
        *self.0.lock()
    }

    /// Ends when no answer has come for `silence_max`, counted from `sent` or from the
    /// last answer after it.
    pub(crate) async fn silence(&self, sent: Instant, silence_max: Duration) {
        let mut since = sent;
        loop {
            sleep_until(since + silence_max).await;
            let last = self.last();
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
        let heard = Heard::new();
        let sent = Instant::now();
        let others = async {
            for _ in 0..10 {
                sleep(Duration::from_millis(1_500)).await;
                heard.note();
            }
        };
        tokio::select! {
            () = heard.silence(sent, SILENCE_MAX) => panic!("others were answered"),
            () = others => {}
        }
        let last = Instant::now();
        heard.silence(sent, SILENCE_MAX).await;
        assert_eq!(last.elapsed(), SILENCE_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_before_the_request_was_sent_does_not_count() {
        let heard = Heard::new();
        sleep(SILENCE_MAX).await;
        let silence = heard.silence(Instant::now(), SILENCE_MAX);
        let before_its_time = timeout(SILENCE_MAX - Duration::from_millis(1), silence).await;
        assert!(before_its_time.is_err());
    }
}
