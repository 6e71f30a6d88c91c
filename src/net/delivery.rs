//! Releases a grant whose response was not delivered.
//!
//! A grant travels in the extensions of its response. [`attach`] moves it into the bytes of
//! the response's body, where it stays until the connection writes them ([`Answers`]). If
//! they are dropped before that, because the caller cancelled or the connection is gone, the
//! grant is released at once.

use std::{
    cell::Cell,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http::Response;
use http_body::{Body, Frame, SizeHint};
use leasehold_lock::LockError;
use tokio::time::{Duration, Instant};

use super::{
    answers::{Answers, Delivery, Unencoded},
    http1_call::Call,
};

/// How long an answer may take to reach its caller, on this machine or near it.
pub(super) const TRANSIT: Duration = Duration::from_micros(500);

/// Moves the delivery in a response's extensions, if there is one, into its body.
///
/// # Errors
///
/// The grant is over, or its answer cannot arrive before the deadline.
pub fn attach<B>(
    mut response: Response<B>,
    answers: &Answers,
    deadline: Option<Instant>,
) -> Result<Response<AnswerBody<B>>, LockError> {
    let grant = match response.extensions_mut().remove::<Delivery>() {
        None => None,
        Some(delivery) => {
            delivery.check()?;
            if deadline.is_some_and(|deadline| deadline <= Instant::now() + TRANSIT) {
                let why = "the lock was not acquired in time for the answer to arrive before the \
                           deadline; it is released";
                return Err(LockError::OutcomeUnknown(why.into()));
            }
            Some(answers.add(delivery, deadline))
        }
    };
    Ok(response.map(|inner| AnswerBody { inner, grant, _call: None }))
}

/// A body whose first bytes carry a grant. Its call is under way until it is dropped.
pub struct AnswerBody<B> {
    inner: B,
    grant: Option<Unencoded>,
    _call: Option<Call>,
}

/// Bytes of a body.
pub struct AnswerBytes {
    bytes: Bytes,
    grant: Cell<Option<Unencoded>>,
}

impl Buf for AnswerBytes {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    /// A transport reads the bytes only to write them or to copy them into its write
    /// buffer. This is the last moment before a vectored write.
    fn chunk(&self) -> &[u8] {
        if let Some(grant) = self.grant.take() {
            grant.encode();
        }
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

impl<B> AnswerBody<B> {
    /// Wraps a response without a grant.
    pub fn without_grant(response: Response<B>) -> Response<Self> {
        response.map(|inner| Self { inner, grant: None, _call: None })
    }

    /// The body of this call.
    pub(super) fn of(self, call: Call) -> Self {
        Self { _call: Some(call), ..self }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for AnswerBody<B> {
    type Data = AnswerBytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<AnswerBytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|bytes| {
                    let grant = self.grant.take_if(|_| !bytes.is_empty());
                    AnswerBytes { bytes, grant: Cell::new(grant) }
                })
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, io, pin::pin, sync::Arc, task::Waker};

    use futures_util::{FutureExt as _, poll};
    use http_body_util::Full;
    use leasehold_lock::{AcquireRequest, Clock, Context as BackendContext, Settings, Store};
    use leasehold_memory::Memory;
    use socket2::SockRef;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::UnixStream,
        time::{advance, sleep},
    };

    use super::{super::answers::LATE_MAX, *};
    use crate::{accepted::Accepted, listener::Stream};

    const DEADLINE: Duration = Duration::from_secs(1);

    /// A grant of a free resource, and the answer to it.
    struct Answered {
        store: Store,
        answers: Answers,
        body: AnswerBody<Full<Bytes>>,
    }

    async fn lock(store: &Store) -> Result<leasehold_lock::Granted, LockError> {
        store.try_lock(AcquireRequest::new("r".parse().unwrap())).await
    }

    async fn response(store: &Store) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from("answer"));
        response.extensions_mut().insert(Delivery::of(lock(store).await.unwrap().receipt));
        response
    }

    fn store() -> Store {
        let settings = Settings::default();
        let context = BackendContext::new(settings.clone(), Clock::system());
        Store::new(Arc::new(Memory::new(&context)), settings)
    }

    impl Answered {
        async fn new() -> Self {
            Self::on(Answers::default(), Some(Instant::now() + DEADLINE)).await
        }

        async fn on(answers: Answers, deadline: Option<Instant>) -> Self {
            let store = store();
            let body = attach(response(&store).await, &answers, deadline).unwrap().into_body();
            Self { store, answers, body }
        }

        /// The transport takes the answer.
        fn take(&mut self) -> AnswerBytes {
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(Some(Ok(frame))) =
                Pin::new(&mut self.body).poll_frame(&mut context)
            else {
                panic!("no data")
            };
            frame.into_data().unwrap_or_else(|_| panic!("no data"))
        }

        async fn expect_held(self, held: bool, when: &str) {
            let Self { store, answers, body } = self;
            drop(body);
            sleep(Duration::from_millis(10)).await;
            assert!(!answers.are_waiting(), "{when}");
            match lock(&store).await {
                Err(LockError::Locked { .. }) => assert!(held, "{when}"),
                other => assert!(other.is_ok() && !held, "{when}: {other:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_whose_answer_is_written_stays() {
        let mut answered = Answered::new().await;
        assert_eq!(answered.take().chunk(), b"answer");
        assert!(answered.answers.are_waiting());
        answered.answers.receive(|| Ok(())).unwrap();
        answered.expect_held(true, "written").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_whose_answer_is_dropped_before_the_write_is_released() {
        Answered::new().await.expect_held(false, "not taken").await;
        let mut cancelled = Answered::new().await;
        drop(cancelled.take());
        cancelled.answers.receive(|| panic!("nothing to write")).unwrap();
        cancelled.expect_held(false, "dropped by the transport").await;
        let mut broken = Answered::new().await;
        broken.take().chunk();
        broken.answers.close();
        broken.expect_held(false, "the connection ended").await;
    }

    /// The process stood still between the grant and the write of its answer.
    /// Trap: net 10
    #[tokio::test(start_paused = true)]
    async fn a_grant_whose_caller_is_gone_at_the_write_is_released() {
        let mut closed = Answered::new().await;
        closed.take().chunk();
        let refused =
            closed.answers.receive(|| Err(io::ErrorKind::BrokenPipe.into())).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        closed.answers.close();
        closed.expect_held(false, "closed").await;
    }

    /// Otherwise there could be two holders: the caller may read an answer whose
    /// grant is released.
    /// Trap: net 10
    #[tokio::test(start_paused = true)]
    async fn a_grant_is_held_if_and_only_if_its_answer_may_be_written() {
        for (late, held) in [(LATE_MAX / 2, true), (LATE_MAX, false)] {
            let mut answered = Answered::new().await;
            answered.take().chunk();
            advance(DEADLINE + late).await;
            for _again in 0..2 {
                let written = answered.answers.receive(|| Ok(()));
                assert_eq!(written.is_ok(), held, "{late:?} after the deadline");
            }
            answered.answers.close();
            answered.expect_held(held, "after the write").await;
        }
    }

    /// Such an answer was written, although its grant was released.
    #[tokio::test(start_paused = true)]
    async fn an_answer_whose_grant_may_be_over_is_not_written() {
        let mut answered = Answered::on(Answers::default(), None).await;
        answered.take().chunk();
        advance(Settings::default().ttl_default).await;
        answered.answers.receive(|| Ok(())).unwrap_err();
    }

    /// Trap: net 10
    #[tokio::test]
    async fn a_grant_is_not_received_while_the_system_takes_no_byte_of_its_answer() {
        for reads in [false, true] {
            let (near, mut far) = UnixStream::pair().unwrap();
            // The runtime still regards it as writable.
            near.writable().await.unwrap();
            while SockRef::from(&near).send(&[0; 4096]).is_ok() {}
            let mut connection = Accepted::from(Stream::Unix(near));
            let mut answered = Answered::on(connection.answers(), None).await;
            answered.take().chunk();
            {
                let mut write = pin!(connection.write_all(b"answer"));
                assert!(poll!(&mut write).is_pending());
                let mut unread = vec![0; 1024 * 1024];
                if reads {
                    loop {
                        tokio::select! {
                            written = &mut write => break written.unwrap(),
                            read = far.read(&mut unread) => assert!(read.unwrap() > 0),
                        }
                    }
                }
            }
            drop(connection);
            answered.expect_held(reads, "the peer may have read").await;
        }
    }

    /// HTTP/2 reads all that it can before it takes up calls. When many calls timed out at once,
    /// it had read more cancelled calls than it allows, and ended the connection.
    #[tokio::test]
    async fn reading_yields_although_an_answer_waits_to_be_written() {
        const SENT: usize = 10_000;
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut connection = Accepted::from(Stream::Unix(near));
        let _waiting = Answered::on(connection.answers(), None).await;
        far.write_all(&[7; SENT]).await.unwrap();
        let mut read = || connection.read_u8().now_or_never().is_some();
        let reads = poll_fn(|_| Poll::Ready((0..SENT).take_while(|_| read()).count())).await;
        assert!(0 < reads && reads < SENT / 10, "{reads} reads at once");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_can_use_is_an_error() {
        let (store, answers) = (store(), Answers::default());
        let late = attach(response(&store).await, &answers, Some(Instant::now()));
        assert!(matches!(late, Err(LockError::OutcomeUnknown(_))));
        sleep(Duration::from_millis(10)).await;
        let over = response(&store).await;
        advance(store.settings().ttl_default).await;
        assert!(matches!(attach(over, &answers, None), Err(LockError::OutcomeUnknown(_))));
    }
}
