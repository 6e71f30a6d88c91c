//! What must hold of another store's answers; see [`crate::fuzzing`].

use std::path::Path;

use leasehold_proto::components::{LockResponse, RenewLockResponse};
use prost::Message as _;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::{backend, status, wire};
use crate::{
    backend::fuzzing::attempt,
    fuzzing::Input,
    lock::{BackendError, LockError, safe_deadline},
};

const VERBS: [status::Verb; 5] = [
    status::Verb::TryLock,
    status::Verb::Lock,
    status::Verb::Renew,
    status::Verb::Unlock,
    status::Verb::Ping,
];

/// The first byte chooses: a refusal, a grant, or a renewal.
pub(crate) fn answers(data: &[u8]) {
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
    assert_eq!(read, status::read(verb, &status), "one status, two meanings");
    if let BackendError::Locked { holder: Some(holder) } = BackendError::from(read) {
        assert!(holder.as_str().len() <= 256);
    }
    match status::init_error(Path::new("/s.sock"), &status) {
        LockError::InvalidMetadata(violations) => assert!(!violations.is_empty()),
        LockError::StoreUnavailable(why) => assert!(why.contains("/s.sock")),
        other => panic!("a refused Init is {other:?}"),
    }
}

fn grant(mut input: Input<'_>) {
    let Some(attempt) = attempt(&mut input) else { return };
    let Ok(response) = LockResponse::decode(input.rest()) else { return };
    let sent = Instant::now();
    let read = backend::grant(&attempt, sent, &response);
    assert_eq!(read, backend::grant(&attempt, sent, &response), "one answer, two meanings");
    if let Ok(grant) = read {
        // The deadline is there, whatever TTL the store says.
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
