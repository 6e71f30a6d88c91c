//! Whether the user may read and write the keys, and what to do if not.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use leasehold_lock::{OpenError, Violation};
use tokio::time::Instant;

use crate::{
    client::{
        connection::Connection,
        failure::{Failure, Refusal},
    },
    keys::Keys,
};

/// Sends a write that changes nothing, but that only a user who may write the keys may
/// send: etcd also checks the branch that is not taken.
pub(super) async fn check(
    connection: &Arc<Connection>,
    keys: &Keys,
    until: Instant,
) -> Result<(), Failure> {
    let key = keys.session("access");
    let link = connection.link(until).await?;
    let txn = Txn::new()
        .when([Compare::create_revision(key.clone(), CompareOp::Less, 0)])
        .and_then([TxnOp::put(key, "", None)]);
    let mut client = link.client().kv_client();
    match connection.answer(&link, until, Box::pin(client.txn(txn))).await {
        // Without space, existing locks can still be renewed and released.
        Ok(_) | Err(Failure::OutOfSpace(_)) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Why the store cannot be opened, and what helps. `root` is what its keys begin with.
pub(super) fn open_error(failure: Failure, root: &str, with_user: bool) -> OpenError {
    let (field, problem) = match failure {
        Failure::Refused(Refusal::Permission, _) => (
            "keyPrefixPath",
            format!(
                "is not the user's to read and write; grant it with `etcdctl role \
                 grant-permission --prefix=true ROLE readwrite '{root}'`"
            ),
        ),
        Failure::Refused(Refusal::Credentials | Refusal::Login, why) if with_user => {
            ("password", format!("or username was refused by etcd ({why})"))
        }
        Failure::Refused(Refusal::Credentials | Refusal::Login, why) => {
            ("username", format!("is missing; etcd asks for a user ({why})"))
        }
        other => {
            let why = format!("{}; start etcd, or correct endpoints", other.why());
            return OpenError::Unavailable(why.into());
        }
    };
    OpenError::Refused(vec![Violation::new(field, problem)])
}
