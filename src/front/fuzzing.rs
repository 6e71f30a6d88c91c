//! Requests of Redis clients, from their bytes to their replies.
//!
//! A module of the front, so that it can use what is private there.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken property panics")]

use std::{
    future::ready,
    sync::{Arc, atomic::AtomicU64},
};

use ::redis::parse_redis_value;
use bytes::BytesMut;
use leasehold_lock::inspect::PageRequest;
use leasehold_testing::Input;
use leasehold_testing::World;

use super::{
    locks::Locks,
    password::Password,
    reply::{Protocol, Reply},
    request::{self, ProtocolError, Request},
    scripts::Scripts,
    session::{Answer, Session, Shared, Step},
};

const KEY: &str = "held";
/// The value that holds the key at the start.
const OWNER: &[u8] = b"owner";
const PASSWORD: &str = "secret";

/// The first byte selects the front's options, the second one how many bytes arrive at a time.
/// The rest is the client's input.
pub fn redis_front(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let step = usize::from(input.byte()) + 1;
    let bytes = input.rest();
    let (requests, error) = read(bytes, bytes.len().max(1));
    assert!((&requests, error) == (&read(bytes, step).0, read(bytes, step).1), "cut by {step}");
    converse(&requests, (flags & 1 > 0).then_some(PASSWORD), flags & 2 > 0);
}

/// Reads input that arrives in pieces of `step` bytes.
fn read(bytes: &[u8], step: usize) -> (Vec<Request>, Option<ProtocolError>) {
    let (mut input, mut requests) = (BytesMut::new(), Vec::new());
    for piece in bytes.chunks(step) {
        input.extend_from_slice(piece);
        loop {
            match request::take(&mut input) {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

/// Carries the requests out, on a store in which [`KEY`] is held.
fn converse(requests: &[Request], password: Option<&str>, may_delete: bool) {
    let world = World::new(leasehold_memory::KIND, KEY);
    let store = world.store.clone();
    let shared = Shared {
        locks: Locks::new("s", Arc::new(move || Box::pin(ready(Ok(store.clone()))))),
        scripts: Scripts::default(),
        password: password.and_then(Password::new),
        may_delete,
        sessions: AtomicU64::new(0),
    };
    let mut session = Session::new(Arc::new(shared), "peer".to_owned());
    let mut may_end = may_delete;
    world.run(async {
        for request in requests.iter().filter(|request| !request.arguments.is_empty()) {
            may_end |= request.arguments.iter().any(|argument| argument.as_ref() == OWNER);
            let was_admitted = session.is_authenticated();
            let answer = match session.read(request) {
                Step::Answer(answer) => answer,
                Step::Locks(call) => {
                    assert!(was_admitted, "{request:?} reached locks without the password");
                    session.carry_out(call).await
                }
            };
            let is_last = answer.is_last;
            answered(request, answer);
            if is_last {
                break;
            }
        }
        let page = PageRequest::first(1);
        let found = world.store.get(&KEY.parse().unwrap(), &page).await.unwrap();
        let is_held = found.lock.grants_total == 1 && found.published.is_none();
        assert!(is_held || may_end, "the lock was ended without its value");
    });
}

/// Every reply is readable in both versions of the protocol, and none is an internal error.
fn answered(request: &Request, Answer { reply, receipt, .. }: Answer) {
    if let Reply::Error(error) = &reply {
        assert!(!error.contains(" INTERNAL: "), "{request:?}: {error}");
    }
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut out = BytesMut::new();
        reply.write(protocol, &mut out);
        assert!(parse_redis_value(&out).is_ok(), "{request:?}: {out:?} is no reply");
    }
    if let Some(receipt) = receipt {
        receipt.accept();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_seed_breaks_a_property() {
        leasehold_testing::no_seed_breaks("redis_front", super::redis_front);
    }
}
