//! Replies and messages of Redis, and the records that are written there.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken property panics")]

use std::sync::Arc;

use ::redis::{Value, parse_redis_value};
use leasehold_lock::{Attempt, FencingToken, LockId};
use leasehold_testing::{Input, attempt};

use crate::{
    entry, hearing::Hearing, inspect::seen::read_seen, reply::Reply, upkeep::Seen,
    waiters::Waiters,
};

/// The first byte selects the type of the rest: a reply, a channel and its message,
/// or an attempt to be recorded.
pub fn redis_values(data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() % 3 {
        0 => reply(input.rest()),
        1 => message(input),
        _ => record(&mut input),
    }
}

/// A reply in the bytes of the Redis protocol.
fn reply(bytes: &[u8]) {
    let Ok(value) = parse_redis_value(bytes) else { return };
    let read = Reply::read(value.clone());
    assert_eq!(read, Reply::read(value.clone()), "the same reply was read in two ways");
    match read {
        Ok(Reply::Made { token, lock_id, .. }) => granted(token, lock_id.as_ref()),
        Ok(Reply::Found { token, lock_id, .. }) => granted(token, Some(&lock_id)),
        Ok(Reply::Held { by: Some(grant), .. }) => {
            assert!(grant.holder.is_none_or(|holder| holder.as_str().len() <= 256));
        }
        _ => {}
    }
    let _ = read_seen(value.clone());
    let _ = Seen::read(value);
}

fn granted(token: FencingToken, lock_id: Option<&LockId>) {
    assert!(token >= FencingToken::new(1).unwrap() && token <= FencingToken::MAX);
    assert!(lock_id.is_none_or(|id| (1..=256).contains(&id.as_str().len())));
}

/// Anybody may publish to the channels, so a message must not create a waiter.
fn message(mut input: Input<'_>) {
    let waiters = Arc::new(Waiters::new());
    let channel = Value::BulkString(input.line().to_vec());
    let hearing = Hearing::of(Arc::clone(&waiters));
    hearing.heard(&[channel, Value::BulkString(input.rest().to_vec())]);
    assert!(!waiters.any(), "a message created a waiter");
}

/// The terms of an attempt, parsed as the library parses them, give the attempt back.
fn record(input: &mut Input<'_>) {
    let Some(attempt) = attempt(input) else { return };
    let terms = entry::terms(&attempt);
    assert_eq!(terms, entry::terms(&attempt));
    assert_eq!(parse_like_the_library(&terms), Some(texts(&attempt)), "{terms:?}");
}

fn texts(attempt: &Attempt) -> (u64, String, String, String) {
    (
        attempt.ttl.as_ms(),
        attempt.lock_id.as_str().to_owned(),
        entry::request_id(attempt).to_owned(),
        attempt.holder.as_ref().map_or("", |holder| holder.as_str()).to_owned(),
    )
}

fn parse_like_the_library(terms: &str) -> Option<(u64, String, String, String)> {
    let mut parts = terms.splitn(7, ':').skip(2);
    let ttl_ms = parts.next()?.parse().ok()?;
    let mut parts = parts.skip(1);
    let locks: usize = parts.next()?.parse().ok()?;
    let requests: usize = parts.next()?.parse().ok()?;
    let (lock_id, text) = parts.next()?.split_at_checked(locks)?;
    let (request_id, holder) = text.split_at_checked(requests)?;
    Some((ttl_ms, lock_id.to_owned(), request_id.to_owned(), holder.to_owned()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_seed_breaks_a_property() {
        leasehold_testing::no_seed_breaks("redis_values", super::redis_values);
    }
}
