//! Limits the bytes and the time of requests that are not complete yet.
//!
//! A message is buffered until it is complete. The size of a message and the number of
//! streams are limited, but their product is more than the memory of a machine.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};
use tonic::Status;

use super::status::ErrorDescription;
use crate::lock::LockError;

/// Bytes of all incomplete requests together. The usual request is small and arrives in
/// one piece.
const INCOMPLETE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long a request may take to be complete.
pub(crate) const WHOLE_WITHIN: Duration = Duration::from_secs(10);

/// The bytes that the incomplete requests of one process may still take. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RequestBudget(Arc<Semaphore>);

/// The body of a request, whose bytes count against the budget until it ends.
pub(crate) struct Counted<B> {
    body: B,
    request_budget: RequestBudget,
    taken: Option<OwnedSemaphorePermit>,
    /// Set once more of the body had to be waited for.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl RequestBudget {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(INCOMPLETE_BYTES_MAX)))
    }

    /// Counts the bytes of this body against the budget.
    pub(crate) fn count<B>(&self, body: B) -> Counted<B> {
        Counted { body, request_budget: self.clone(), taken: None, deadline: None }
    }
}

impl<B> Counted<B> {
    /// Takes `bytes` from the budget. Returns whether there was enough of it.
    fn take(&mut self, bytes: usize) -> bool {
        let Ok(bytes) = u32::try_from(bytes) else { return false };
        let Ok(more) = Arc::clone(&self.request_budget.0).try_acquire_many_owned(bytes) else {
            return false;
        };
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            none => *none = Some(more),
        }
        true
    }
}

impl<B> Body for Counted<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(WHOLE_WITHIN)));
            ready!(deadline.as_mut().poll(context));
            let why = format!("the request did not come whole within {WHOLE_WITHIN:?}");
            return Poll::Ready(Some(Err(Status::deadline_exceeded(why))));
        };
        let bytes = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            Some(Err(_)) | None => 0,
        };
        if frame.is_none() || self.body.is_end_stream() {
            self.taken = None;
        } else if bytes > 0 && !self.take(bytes) {
            return Poll::Ready(Some(
                Err(ErrorDescription::from(LockError::Overloaded).into()),
            ));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(|error| Status::from_error(error.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};
    use tokio::sync::mpsc;
    use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
    use tonic::Code;

    use super::*;

    type Sender = mpsc::Sender<Bytes>;
    type Parts = Pin<Box<dyn tokio_stream::Stream<Item = Result<Frame<Bytes>, Status>> + Send>>;

    /// A body that is sent in parts.
    fn body(request_budget: &RequestBudget) -> (Sender, Counted<StreamBody<Parts>>) {
        let (sender, parts) = mpsc::channel(4);
        let parts: Parts =
            Box::pin(ReceiverStream::new(parts).map(|part| Ok(Frame::data(part))));
        (sender, request_budget.count(StreamBody::new(parts)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_end_is_refused_in_time() {
        let (sender, mut body) = body(&RequestBudget::new());
        sender.send(Bytes::from_static(b"x")).await.unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        let refused = body.frame().await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::DeadlineExceeded);
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_have_not_ended_share_their_room_and_give_it_back() {
        const HALF: usize = INCOMPLETE_BYTES_MAX / 2;
        let request_budget = RequestBudget::new();
        let (first_sender, mut first) = body(&request_budget);
        let (second_sender, mut second) = body(&request_budget);
        first_sender.send(Bytes::from(vec![0; HALF])).await.unwrap();
        second_sender.send(Bytes::from(vec![0; HALF])).await.unwrap();
        assert!(first.frame().await.unwrap().is_ok() && second.frame().await.unwrap().is_ok());
        second_sender.send(Bytes::from_static(b"x")).await.unwrap();
        let refused = second.frame().await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        drop(first_sender);
        assert!(first.frame().await.is_none());
        second_sender.send(Bytes::from_static(b"x")).await.unwrap();
        assert!(second.frame().await.unwrap().is_ok());
        drop(second);
        assert_eq!(request_budget.0.available_permits(), INCOMPLETE_BYTES_MAX);
    }
}
