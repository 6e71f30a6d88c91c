//! Work that runs to its end even if its caller goes away.

use leasehold_lock::LockError;
use tracing::Instrument as _;

/// Runs the work to its end even if this future is dropped, which happens when the caller
/// of a gRPC or HTTP call goes away. So what the work logs at its end is always logged.
pub(crate) async fn completed<T, E>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<LockError> + Send + 'static,
{
    let task = tokio::spawn(work.in_current_span());
    task.await.unwrap_or_else(|_| Err(LockError::Internal.into()))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_is_completed_without_its_caller() {
        let (go, gone) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        let call = completed(async move {
            let _ = gone.await;
            let _ = done.send(());
            Ok::<_, LockError>(())
        });
        assert!(call.now_or_never().is_none());
        go.send(()).unwrap();
        is_done.await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_is_an_internal_error() {
        let call = completed::<(), LockError>(async { panic!("a defect") });
        assert_eq!(call.await, Err(LockError::Internal));
    }
}
