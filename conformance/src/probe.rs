//! Finds out what the store lacks, before the first case.

use std::time::Duration;

use tonic::Code;

use crate::{
    answer::Rejection,
    grant::Ask,
    lacks::{DOMAIN, Lacks},
    store::Store,
};

/// One byte more than the protocol allows.
const NAME_TOO_LONG_BYTES: usize = 1025;

/// Finds out what the store lacks, with calls of which several must be refused. The caller
/// must unlock `resource` afterwards.
pub(crate) async fn probe(store: &Store, stranger: &Store, resource: &str) -> Lacks {
    let secret = "conformance-probe";
    let ask = Ask::of(resource);
    // The result does not matter: the second TryLock below is refused in any case.
    let _ = store.try_lock(&ask).await;
    let too_long = resource.to_owned() + &"r".repeat(NAME_TOO_LONG_BYTES);
    let bad =
        [store.try_lock(&Ask::of(&too_long)).await.err(), store.unlock("", secret).await.err()];
    let others = [
        store.try_lock(&ask).await.err(),
        store.unlock(resource, secret).await.err(),
        stranger.try_lock(&ask).await.err(),
    ];
    let renewed = store.renew(resource, secret, Duration::from_secs(60)).await.err();

    let bad: Vec<_> = bad.into_iter().flatten().filter(is_a_refusal).collect();
    let others = others.into_iter().flatten().filter(is_a_refusal);
    let all: Vec<_> = bad.iter().cloned().chain(others).collect();
    let has_info = |rejection: &Rejection| {
        rejection.error_info().is_some_and(|info| info.domain == DOMAIN)
    };
    Lacks {
        error_info: !all.is_empty() && !all.iter().any(has_info),
        bad_request: !bad.is_empty() && bad.iter().all(|bad| bad.bad_fields().is_none()),
        renewal: renewed.is_some_and(|renewed| renewed.code() == Code::Unimplemented),
    }
}

/// Whether the code is one with which these calls should be refused. Any other result, such as
/// a broken connection, is no evidence about the store's refusals.
fn is_a_refusal(rejection: &Rejection) -> bool {
    matches!(
        rejection.code(),
        Code::Aborted | Code::NotFound | Code::InvalidArgument | Code::FailedPrecondition
    )
}
