//! Limits the bytes and the time of requests that are not complete yet.
//!
//! A message is buffered until it is complete. The size of a message and the number of
//! streams are limited, but their product is more than the memory of a machine. In a stream
//! of requests, each message counts separately, and the time between messages is not
//! limited.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use leasehold_lock::LockError;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Sleep, sleep},
};
use tonic::Status;

use super::{message_framing::MessageFraming, status::ErrorDescription};

/// Bytes of all incomplete requests together. The usual request is small and arrives in
/// one piece.
const INCOMPLETE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How long a request may take to be complete.
pub const WHOLE_WITHIN: Duration = Duration::from_secs(10);

/// The bytes that the incomplete requests of one process may still take. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RequestBudget(Arc<Semaphore>);

/// The body of a request, whose bytes count against the budget until it ends.
pub struct Counted<B> {
    body: B,
    request_budget: RequestBudget,
    taken: Option<OwnedSemaphorePermit>,
    /// Set once the body, or a message of a stream, did not arrive in one piece.
    deadline: Option<Pin<Box<Sleep>>>,
    /// The messages, if the body is a stream of them.
    framing: Option<MessageFraming>,
    /// Whether the message of a stream that arrived last is whole.
    is_between_messages: bool,
}

/// A full budget.
impl Default for RequestBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(INCOMPLETE_BYTES_MAX)))
    }
}

impl RequestBudget {
    /// Counts the bytes of this body against the budget.
    pub fn count<B>(&self, body: B) -> Counted<B> {
        Counted {
            body,
            request_budget: self.clone(),
            taken: None,
            deadline: None,
            framing: None,
            is_between_messages: false,
        }
    }

    /// Counts the bytes of each message of this gRPC body against the budget until the
    /// message is whole.
    pub fn count_messages<B>(&self, body: B) -> Counted<B> {
        let framing = Some(MessageFraming::default());
        Counted { framing, is_between_messages: true, ..self.count(body) }
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
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
            if this.is_between_messages {
                return Poll::Pending;
            }
            let deadline = this.deadline.get_or_insert_with(|| Box::pin(sleep(WHOLE_WITHIN)));
            ready!(deadline.as_mut().poll(context));
            let why = format!("the request did not come whole within {WHOLE_WITHIN:?}");
            return Poll::Ready(Some(Err(Status::deadline_exceeded(why))));
        };
        let data = match &frame {
            Some(Ok(frame)) => frame.data_ref(),
            Some(Err(_)) | None => None,
        };
        if let (Some(framing), Some(data)) = (&mut this.framing, data) {
            this.is_between_messages = framing.follow(data);
        }
        let bytes = data.map_or(0, Bytes::len);
        if frame.is_none() || this.body.is_end_stream() || this.is_between_messages {
            (this.taken, this.deadline) = (None, None);
        } else if bytes > 0 && !this.take(bytes) {
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
    fn parts() -> (Sender, StreamBody<Parts>) {
        let (sender, parts) = mpsc::channel(4);
        let parts: Parts =
            Box::pin(ReceiverStream::new(parts).map(|part| Ok(Frame::data(part))));
        (sender, StreamBody::new(parts))
    }

    fn body(request_budget: &RequestBudget) -> (Sender, Counted<StreamBody<Parts>>) {
        let (sender, parts) = parts();
        (sender, request_budget.count(parts))
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_may_be_silent_between_its_messages() {
        let request_budget = RequestBudget::default();
        let (sender, body) = parts();
        let mut body = request_budget.count_messages(body);
        for _ in 0..3 {
            let silence = tokio::time::timeout(WHOLE_WITHIN * 10, body.frame());
            assert!(silence.await.is_err(), "it goes on");
            sender.send(Bytes::from_static(&[0, 0, 0, 0, 1])).await.unwrap();
            assert!(body.frame().await.unwrap().is_ok());
            assert!(request_budget.0.available_permits() < INCOMPLETE_BYTES_MAX);
            sender.send(Bytes::from_static(&[7])).await.unwrap();
            assert!(body.frame().await.unwrap().is_ok());
            assert_eq!(request_budget.0.available_permits(), INCOMPLETE_BYTES_MAX);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_of_a_stream_that_does_not_end_is_refused_in_time() {
        let (sender, body) = parts();
        let mut body = RequestBudget::default().count_messages(body);
        sender.send(Bytes::from_static(&[0, 0, 0, 0, 2, 7])).await.unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        let refused = body.frame().await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::DeadlineExceeded);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_end_is_refused_in_time() {
        let (sender, mut body) = body(&RequestBudget::default());
        sender.send(Bytes::from_static(b"x")).await.unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        let refused = body.frame().await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::DeadlineExceeded);
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_have_not_ended_share_their_room_and_give_it_back() {
        const HALF: usize = INCOMPLETE_BYTES_MAX / 2;
        let request_budget = RequestBudget::default();
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
