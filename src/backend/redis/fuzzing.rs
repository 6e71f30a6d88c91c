//! What must hold of what Redis answers; see [`crate::fuzzing`].
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken property panics")]

use ::redis::{Value, parse_redis_value};

use super::{entry, reply::Reply, session, upkeep::Seen, waiters::Waiters};
use crate::{
    backend::fuzzing::attempt,
    fuzzing::Input,
    lock::{Attempt, FencingToken},
};

/// The first byte chooses: an answer, a message of a channel, or a record.
pub(crate) fn values(data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() % 3 {
        0 => reply(input.rest()),
        1 => message(input),
        _ => record(&mut input),
    }
}

/// A reply as the server sends it.
fn reply(bytes: &[u8]) {
    let Ok(value) = parse_redis_value(bytes) else { return };
    let read = Reply::read(value.clone());
    assert_eq!(read, Reply::read(value.clone()), "one value, two meanings");
    match read {
        Ok(Reply::Made { token, lock_id } | Reply::Found { token, lock_id }) => {
            assert!(token >= FencingToken::new(1).unwrap() && token <= FencingToken::MAX);
            assert!(lock_id.is_none_or(|id| (1..=256).contains(&id.as_str().len())));
        }
        Ok(Reply::Held { holder: Some(holder), .. }) => assert!(holder.as_str().len() <= 256),
        _ => {}
    }
    let _ = Seen::read(value);
}

/// A message of the channels that everybody may write to.
fn message(mut input: Input<'_>) {
    let waiters = Waiters::new();
    let channel = Value::BulkString(input.line().to_vec());
    session::heard(&waiters, &[channel, Value::BulkString(input.rest().to_vec())]);
    assert!(!waiters.any(), "a message makes a waiter");
}

/// What is written of an attempt is read back by the rules of the scripts.
fn record(input: &mut Input<'_>) {
    let Some(attempt) = attempt(input) else { return };
    let rest = entry::rest(&attempt);
    assert_eq!(rest, entry::rest(&attempt));
    assert_eq!(read_as_the_scripts_do(&rest), Some(texts(&attempt)), "{rest:?}");
    assert!(entry::counter(&attempt.resource) < entry::COUNTERS);
}

fn texts(attempt: &Attempt) -> (u64, String, String, String) {
    (
        attempt.ttl.as_ms(),
        attempt.lock_id.as_str().to_owned(),
        entry::request_id(attempt).to_owned(),
        attempt.holder.as_ref().map_or("", |holder| holder.as_str()).to_owned(),
    )
}

fn read_as_the_scripts_do(rest: &str) -> Option<(u64, String, String, String)> {
    let mut parts = rest.splitn(7, ':');
    let ttl_ms = parts.next()?.parse().ok()?;
    let mut parts = parts.skip(3);
    let locks: usize = parts.next()?.parse().ok()?;
    let requests: usize = parts.next()?.parse().ok()?;
    let (lock_id, text) = parts.next()?.split_at_checked(locks)?;
    let (request_id, holder) = text.split_at_checked(requests)?;
    Some((ttl_ms, lock_id.to_owned(), request_id.to_owned(), holder.to_owned()))
}
