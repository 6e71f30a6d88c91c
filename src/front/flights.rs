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

/// Calls under way, and answers that wait for those before them.
#[derive(Default)]
pub(super) struct Flights {
    answers: FuturesOrdered<BoxFuture<'static, (Protocol, Answer)>>,
    /// What each of them does with locks, if anything.
    verbs: VecDeque<Option<Verb>>,
}

impl Flights {
    /// Adds a call.
    pub(super) fn add(
        &mut self,
        protocol: Protocol,
        verb: Verb,
        answer: impl Future<Output = Answer> + Send + 'static,
    ) {
        self.verbs.push_back(Some(verb));
        self.answers.push_back(Box::pin(async move { (protocol, answer.await) }));
    }

    /// Adds an answer behind the calls that are under way.
    pub(super) fn add_answer(&mut self, protocol: Protocol, answer: Answer) {
        self.verbs.push_back(None);
        self.answers.push_back(Box::pin(ready((protocol, answer))));
    }

    /// Whether a call with one of its keys is under way.
    pub(super) fn meets(&self, verb: &Verb) -> bool {
        self.verbs.iter().flatten().any(|other| other.meets(verb))
    }

    /// Whether no more calls may begin.
    pub(super) fn is_full(&self) -> bool {
        self.verbs.len() >= FLIGHTS_MAX
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.verbs.is_empty()
    }

    /// The next answer in the order of the requests; `None` if nothing is under way. No answer
    /// is lost if this is dropped.
    pub(super) async fn next(&mut self) -> Option<(Protocol, Answer)> {
        let answer = poll_fn(|context| self.answers.poll_next_unpin(context)).await;
        if answer.is_some() {
            self.verbs.pop_front();
        }
        answer
    }
}
