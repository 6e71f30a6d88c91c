//! The answers of a third-party lock store.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken property panics")]

use std::path::Path;

use leasehold_lock::{BackendError, Instant, LockError, safe_deadline};
use leasehold_proto::components::{LockResponse, RenewLockResponse};
use leasehold_testing::{Input, attempt};
use prost::Message as _;
use tonic::{Code, Status};

use crate::{backend, status, wire};

const VERBS: [status::Verb; 5] = [
    status::Verb::TryLock,
    status::Verb::Lock,
    status::Verb::Renew,
    status::Verb::Unlock,
    status::Verb::Ping,
];

/// The first byte selects the type of the rest: a refusal, a grant, or a renewal.
pub fn pluggable_answers(data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() % 3 {
        0 => refusal(input),
        1 => grant(input),
        _ => renewal(input.rest()),
    }
}

fn refusal(mut input: Input<'_>) {
    let verb = VERBS[usize::from(input.byte()) % VERBS.len()];
    let code = Code::from(i32::from(input.byte() % 17));
    let message = input.text();
    let status = Status::with_details(code, message, input.rest().to_vec().into());
    let read = status::read(verb, &status);
    assert_eq!(read, status::read(verb, &status), "the same status was read in two ways");
    if let BackendError::Locked { by: Some(grant) } = BackendError::from(read) {
        assert!(grant.holder.is_none_or(|holder| holder.as_str().len() <= 256));
    }
    match status::init_error(Path::new("/s.sock"), &status) {
        LockError::InvalidMetadata(violations) => assert!(!violations.is_empty()),
        LockError::StoreUnavailable(why) => assert!(why.contains("/s.sock")),
        other => panic!("a refused Init became {other:?}"),
    }
}

fn grant(mut input: Input<'_>) {
    let Some(attempt) = attempt(&mut input) else { return };
    let Ok(response) = LockResponse::decode(input.rest()) else { return };
    let sent = Instant::now();
    let read = backend::grant(&attempt, sent, &response);
    assert_eq!(
        read,
        backend::grant(&attempt, sent, &response),
        "the same answer was read in two ways"
    );
    if let Ok(grant) = read {
        // Whatever TTL the store claims, the safe deadline can be computed.
        assert!(safe_deadline(grant.since, grant.ttl) >= grant.since);
        assert!(!grant.created || grant.lock_id == attempt.lock_id);
    }
}

fn renewal(bytes: &[u8]) {
    let Ok(response) = RenewLockResponse::decode(bytes) else { return };
    if let Some(ttl) = wire::from_wire(response.ttl) {
        let _ = safe_deadline(Instant::now(), ttl);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_seed_breaks_a_property() {
        leasehold_testing::no_seed_breaks("pluggable_answers", super::pluggable_answers);
    }
}
