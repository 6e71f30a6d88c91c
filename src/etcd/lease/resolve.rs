//! Resolves the outcome of a write under a lease with a lost answer.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use leasehold_util::retry::pause_before;
use tokio::time::Instant;

use crate::{
    client::{
        connection::{Connection, delays},
        failure::{Failure, Refusal},
    },
    revision::Revision,
};

/// A write of a grant's record under a lease, whose outcome is not known yet.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    key: Arc<str>,
    /// For a move of a live grant: the revision that the write compares, and the lease that the
    /// key lies under before. `None` for a key that is new.
    pub(super) moved: Option<(Revision, i64)>,
}

impl Begun {
    /// A write of a new key, which is to go with the lease unless the write is known to have
    /// succeeded.
    pub(crate) fn new(key: &str) -> Self {
        Self { key: key.into(), moved: None }
    }

    /// A move of a live grant, which must not end with the lease.
    pub(crate) fn moving(key: &str, pair: &KeyValue) -> Self {
        let moved = (Revision::from_etcd(pair.mod_revision()), pair.lease());
        Self { key: key.into(), moved: Some(moved) }
    }

    /// Whether the key is new.
    pub(crate) fn is_new(&self) -> bool {
        self.moved.is_none()
    }

    /// Resolves the outcome of a write under a lease with a lost answer. If it was not applied,
    /// it may still be under way: a proposal can outlive its connection. So the lease of a new
    /// key is revoked. A key that was to be moved is written again, unchanged, so that the move
    /// finds another revision. Then the key is read again.
    ///
    /// Returns the revision at which the key was written under the lease. `None` if it does not
    /// lie under it and never will. It may have until somebody else ended or moved the grant.
    pub(super) async fn resolve(
        &self,
        connection: &Arc<Connection>,
        id: i64,
        may_come: bool,
        until: Instant,
    ) -> Result<Option<Revision>, Failure> {
        let revision = |pair: &KeyValue| Revision::from_etcd(pair.mod_revision());
        let mut is_settled = !may_come;
        loop {
            let get = vec![TxnOp::get(&*self.key, None)];
            let (_, found) = connection.read(get, until).await?;
            let found = found.iter().find_map(|get| get.kvs().first());
            if let Some(pair) = found.filter(|pair| pair.lease() == id) {
                return Ok(Some(revision(pair)));
            }
            if is_settled {
                return Ok(None);
            }
            is_settled = match (self.moved, found) {
                (None, _) => {
                    revoke(connection, id, until).await?;
                    true
                }
                (Some((compared, _)), Some(pair)) if revision(pair) == compared => {
                    match fence(connection, &self.key, pair, until).await {
                        Ok(()) => true,
                        Err(failure) if failure.is_passing() && Instant::now() < until => false,
                        Err(failure) => return Err(failure),
                    }
                }
                _ => return Ok(None),
            };
        }
    }
}

/// Writes a key again as it is, if it is unchanged.
async fn fence(
    connection: &Arc<Connection>,
    key: &str,
    pair: &KeyValue,
    until: Instant,
) -> Result<(), Failure> {
    let options = PutOptions::new().with_lease(pair.lease());
    let fence = Txn::new()
        .when([
            Compare::mod_revision(key, CompareOp::Equal, pair.mod_revision()),
            Compare::lease(key, CompareOp::Equal, pair.lease()),
        ])
        .and_then([TxnOp::put(key, pair.value(), Some(options))]);
    let link = connection.link(until).await?;
    let mut client = link.client().kv_client();
    connection.answer(&link, until, Box::pin(client.txn(fence))).await.map(|_| ())
}

/// Revokes a lease; returns whether there was one.
pub(super) async fn revoke(
    connection: &Arc<Connection>,
    id: i64,
    until: Instant,
) -> Result<bool, Failure> {
    let mut delays = delays();
    loop {
        let link = connection.link(until).await?;
        let mut client = link.client().lease_client();
        match connection.answer(&link, until, Box::pin(client.revoke(id))).await {
            Ok(_) => return Ok(true),
            Err(Failure::Refused(Refusal::LeaseNotFound, _)) => return Ok(false),
            Err(failure) if failure.is_passing() => {
                if !pause_before(until, delays.next_delay()).await {
                    return Err(failure);
                }
            }
            Err(refused) => return Err(refused),
        }
    }
}
