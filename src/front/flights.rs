//! The calls of a connection that are under way at the same time.
//!
//! Clients that share one connection among all their callers send many requests before the
//! first reply. A store may take milliseconds for each, so they are carried out together, as far
//! as they concern different keys. Replies keep the order of the requests.

use std::{
    collections::VecDeque,
    future::{poll_fn, ready},
};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesOrdered};

use super::{reply::Protocol, session::Answer, verb::Verb};

/// How many calls of a connection are under way at a time.
const FLIGHTS_MAX: usize = 128;
/// How many bytes the answers may have that wait for calls before them.
const WAITING_BYTES_MAX: usize = 256 * 1024;

/// Calls under way, and answers that wait for those before them.
#[derive(Default)]
pub(super) struct Flights {
    answers: FuturesOrdered<BoxFuture<'static, (Protocol, Answer)>>,
    each: VecDeque<Flight>,
    waiting_bytes: usize,
}

enum Flight {
    /// A call on locks.
    Call(Verb),
    /// An answer that waits, and its size in bytes.
    Answer(usize),
}

impl Flights {
    /// Adds a call.
    pub(super) fn add(
        &mut self,
        protocol: Protocol,
        verb: Verb,
        answer: impl Future<Output = Answer> + Send + 'static,
    ) {
        self.each.push_back(Flight::Call(verb));
        self.answers.push_back(Box::pin(async move { (protocol, answer.await) }));
    }

    /// Adds an answer behind the calls that are under way.
    pub(super) fn add_answer(&mut self, protocol: Protocol, answer: Answer) {
        let bytes = answer.reply.size();
        self.waiting_bytes += bytes;
        self.each.push_back(Flight::Answer(bytes));
        self.answers.push_back(Box::pin(ready((protocol, answer))));
    }

    /// Whether a call with one of its keys is under way.
    pub(super) fn has_a_key_of(&self, verb: &Verb) -> bool {
        self.each.iter().any(|flight| match flight {
            Flight::Call(other) => other.shares_a_key_with(verb),
            Flight::Answer(_) => false,
        })
    }

    /// Whether no more calls may begin.
    pub(super) fn is_full(&self) -> bool {
        self.each.len() >= FLIGHTS_MAX || self.waiting_bytes >= WAITING_BYTES_MAX
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// The next answer in the order of the requests; `None` if nothing is under way. No answer
    /// is lost if this is dropped.
    pub(super) async fn next(&mut self) -> Option<(Protocol, Answer)> {
        let answer = poll_fn(|context| self.answers.poll_next_unpin(context)).await;
        let ended = answer.as_ref().and_then(|_| self.each.pop_front());
        if let Some(Flight::Answer(bytes)) = ended {
            self.waiting_bytes -= bytes;
        }
        answer
    }
}
