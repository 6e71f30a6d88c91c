//! Whether an answer that carries a grant was taken by the transport.
//!
//! A handler puts a [`Delivery`] into its response's extensions. [`Delivered`]
//! takes it out and settles it when the transport has polled the body to its
//! end; a response that is dropped before that (the caller cancelled or
//! disconnected) drops the delivery unsettled, which releases the grant.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::Request,
    middleware::Next,
    response::Response,
};
use http_body::{Frame, SizeHint};

use super::held::{Engine, Holding};
use crate::lock::Receipt;

/// A grant on its way to the caller. Clones share one grant.
#[derive(Clone)]
pub struct Delivery(Arc<Mutex<Option<Freight>>>);

struct Freight {
    receipt: Receipt,
    hold: Option<(Engine, Holding)>,
}

impl Delivery {
    /// A grant that is only to be received.
    #[must_use]
    pub fn of(receipt: Receipt) -> Self {
        Self(Arc::new(Mutex::new(Some(Freight { receipt, hold: None }))))
    }

    /// A grant that the engine holds from its receipt on.
    #[must_use]
    pub fn held_by(receipt: Receipt, engine: Engine, holding: Holding) -> Self {
        Self(Arc::new(Mutex::new(Some(Freight { receipt, hold: Some((engine, holding)) }))))
    }

    /// The transport took the answer.
    pub fn accept(&self) {
        let freight = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Freight { receipt, hold }) = freight {
            receipt.accept();
            if let Some((engine, holding)) = hold {
                engine.hold(holding);
            }
        }
    }
}

/// Accepts a response's [`Delivery`], if it has one, when its body has been
/// taken.
pub async fn watch(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<Delivery>() {
        Some(delivery) => {
            response.map(|inner| Body::new(Delivered { inner, delivery: Some(delivery) }))
        }
        None => response,
    }
}

/// A body that settles its delivery when it has been polled to its end.
struct Delivered {
    inner: Body,
    delivery: Option<Delivery>,
}

impl HttpBody for Delivered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        let failed = matches!(frame, Some(Err(_)));
        let ended = frame.is_none()
            || matches!(&frame, Some(Ok(frame)) if frame.is_trailers())
            || self.inner.is_end_stream();
        if failed {
            self.delivery = None;
        } else if ended && let Some(delivery) = self.delivery.take() {
            delivery.accept();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.delivery.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::time::Duration;

    use super::*;
    use crate::{
        backend::{Context as BackendContext, memory::Memory},
        lock::{AcquireRequest, Clock, LockError, Settings, Store},
    };

    fn store() -> Store {
        let settings = Settings::default();
        let context = BackendContext { settings: settings.clone(), clock: Clock::system() };
        Store::new(Arc::new(Memory::new(&context)), settings)
    }

    async fn response(store: &Store) -> Delivered {
        let granted = store.try_lock(AcquireRequest::new("r")).await.unwrap();
        let delivery = Some(Delivery::of(granted.receipt));
        Delivered { inner: Body::from("answer"), delivery }
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_whose_answer_was_taken_stays() {
        let store = store();
        let body = response(&store).await.collect().await.unwrap();
        assert_eq!(body.to_bytes(), "answer");
        tokio::time::sleep(Duration::from_secs(1)).await;
        let refused = store.try_lock(AcquireRequest::new("r")).await;
        assert!(matches!(refused, Err(LockError::Locked { .. })), "{refused:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_whose_answer_nobody_took_is_released() {
        let store = store();
        drop(response(&store).await);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(store.try_lock(AcquireRequest::new("r")).await.is_ok());
    }
}
