//! Detects a daprd that no longer answers over HTTP, for example because it is suspended.
//!
//! A request may take as long as its app likes, and HTTP/1 has no pings. So while a request
//! waits, daprd's health is requested: any answer shows that it is alive.

use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout},
};
use tower::BoxError;

use super::client::{PING_INTERVAL, PING_TIMEOUT};

/// The result of the last health request. All calls share it, so that there is one request at a
/// time.
#[derive(Debug, Default)]
pub(super) struct Liveness(Mutex<Option<(Instant, bool)>>);

impl Liveness {
    /// Completes when daprd does not answer `ask`, which is called periodically.
    pub(super) async fn lost<F, T, E>(&self, ask: impl Fn() -> F) -> BoxError
    where
        F: Future<Output = Result<T, E>>,
    {
        loop {
            sleep(PING_INTERVAL).await;
            let mut last = self.0.lock().await;
            let answers = match *last {
                Some((at, answers)) if at.elapsed() < PING_INTERVAL => answers,
                _ => {
                    let answers = matches!(timeout(PING_TIMEOUT, ask()).await, Ok(Ok(_)));
                    *last = Some((Instant::now(), answers));
                    answers
                }
            };
            if !answers {
                return format!("it did not answer a health check within {PING_TIMEOUT:?}")
                    .into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, ready},
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures_util::future::join_all;

    use super::*;

    type Answer = Result<(), ()>;

    #[tokio::test(start_paused = true)]
    async fn a_daprd_that_answers_is_not_lost_and_is_asked_once_for_all_calls() {
        let (liveness, asked) = (Liveness::default(), AtomicUsize::new(0));
        let ask = || {
            asked.fetch_add(1, Ordering::Relaxed);
            ready(Answer::Ok(()))
        };
        let calls = join_all((0..100).map(|_| liveness.lost(ask)));
        assert!(timeout(PING_INTERVAL * 10 + PING_TIMEOUT, calls).await.is_err());
        assert_eq!(asked.into_inner(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_daprd_that_stopped_answering_is_lost_to_all_calls_at_once() {
        let (liveness, begun) = (Liveness::default(), Instant::now());
        let ask = || async {
            if begun.elapsed() > PING_INTERVAL * 3 { pending().await } else { Answer::Ok(()) }
        };
        join_all((0..100).map(|_| liveness.lost(ask))).await;
        assert!(begun.elapsed() <= PING_INTERVAL * 4 + PING_TIMEOUT * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_daprd_that_came_back_is_not_lost_to_a_new_call() {
        let liveness = Liveness::default();
        liveness.lost(|| ready(Answer::Err(()))).await;
        let call = liveness.lost(|| ready(Answer::Ok(())));
        assert!(timeout(PING_INTERVAL * 10, call).await.is_err());
    }
}
