//! One write: a transaction that may be committed in a batch with others.

use std::sync::Arc;

use etcd_client::{
    Compare, CompareOp, GetOptions, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse,
};
use leasehold_lock::{self as lock, Mode};
use tokio::time::Instant;

use crate::{
    keys::{GrantKeys, range_end},
    lease::pool::Lease,
    revision::Revision,
};

/// Bytes that an operation costs besides its keys and values.
const OVERHEAD_BYTES: usize = 160;

/// A key that a write claims. Two writes of a batch may claim the same key only if both
/// claim it as shared.
pub(crate) type Claim = (Arc<str>, Mode);

/// A compared write, made by [`Op::new`] or [`Op::of_grant`] and completed by the methods
/// that add a comparison or an operation.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    /// Its claims; empty if it writes keys that no other write uses. A write of the
    /// exclusive grant excludes every other one of its resource, because a batch compares
    /// with the state before it. Writes of several shared grants go together.
    pub(crate) claims: Vec<Claim>,
    /// Whether it makes a queue longer: other writes go before it.
    pub(crate) enters: bool,
    /// Whether it needs space in etcd's database.
    pub(crate) puts: bool,
    /// It is not sent after this.
    pub(crate) until: Instant,
    /// The lease of a grant that it makes or moves. The write is not sent once the lease is
    /// no longer fresh enough or may no longer be reused.
    pub(crate) lease: Option<Lease>,
    when: Vec<Compare>,
    then: Vec<TxnOp>,
    otherwise: Vec<TxnOp>,
    /// The size of all keys and values.
    bytes: usize,
}

impl Op {
    /// A write of keys that nobody else writes.
    pub(crate) fn new(until: Instant) -> Self {
        Self {
            claims: Vec::new(),
            enters: false,
            puts: false,
            until,
            lease: None,
            when: Vec::new(),
            then: Vec::new(),
            otherwise: Vec::new(),
            bytes: 0,
        }
    }

    /// A write of a grant's keys.
    pub(crate) fn of_grant(keys: &GrantKeys, until: Instant) -> Self {
        let mode = if keys.shared.is_some() { Mode::Shared } else { Mode::Exclusive };
        let mut claims = vec![(keys.holder.as_str().into(), mode)];
        if let Some(shared) = &keys.shared {
            let request = shared.request.as_ref().map(|(key, _)| key);
            let own = [Some(&shared.record), request].into_iter().flatten();
            claims.extend(own.map(|key| (key.as_str().into(), Mode::Exclusive)));
        }
        Self { claims, ..Self::new(until) }
    }

    /// Marks it as making a queue longer.
    pub(crate) fn entering(mut self) -> Self {
        self.enters = true;
        self
    }

    /// Takes place only if the key does not exist.
    pub(crate) fn when_absent(self, key: &str) -> Self {
        self.when(key, Compare::create_revision(key, CompareOp::Equal, 0))
    }

    /// Takes place only if the key exists.
    pub(crate) fn when_present(self, key: &str) -> Self {
        self.when(key, Compare::create_revision(key, CompareOp::Greater, 0))
    }

    /// Takes place only if a shared grant has neither a record yet nor a key for its request. An
    /// exclusive grant is not compared.
    pub(crate) fn when_new(self, keys: &GrantKeys) -> Self {
        let Some(shared) = &keys.shared else { return self };
        let op = self.when_absent(&shared.record);
        keys.request().into_iter().fold(op, Self::when_absent)
    }

    /// Takes place only if no key begins with `prefix`.
    pub(crate) fn when_none_below(mut self, prefix: &str) -> Self {
        let none = Compare::create_revision(prefix, CompareOp::Equal, 0);
        // The end of the range is as long as the prefix.
        self.bytes += prefix.len();
        self.when(prefix, none.with_range(range_end(prefix)))
    }

    /// Takes place only if the key exists since `revision`.
    pub(crate) fn when_created_at(self, key: &str, revision: Revision) -> Self {
        self.when(key, Compare::create_revision(key, CompareOp::Equal, revision.to_etcd()))
    }

    /// Takes place only if the key was last written at `revision`.
    pub(crate) fn when_written_at(self, key: &str, revision: Revision) -> Self {
        self.when(key, Compare::mod_revision(key, CompareOp::Equal, revision.to_etcd()))
    }

    /// Takes place only if the key lies under this lease.
    pub(crate) fn when_under(self, key: &str, lease: i64) -> Self {
        self.when(key, Compare::lease(key, CompareOp::Equal, lease))
    }

    /// Takes place only if the key is as it was read. The revision alone does not
    /// distinguish it from the key of another grant: a restored data set counts its
    /// revisions anew. The IDs of leases are random, so they differ also across a
    /// restore. A key without a lease is not ours, and is compared by its value.
    pub(crate) fn when_unchanged(self, key: &str, pair: &KeyValue) -> Self {
        let op = self.when_written_at(key, Revision::from_etcd(pair.mod_revision()));
        match pair.lease() {
            0 => op.when(key, Compare::value(key, CompareOp::Equal, pair.value())),
            lease => op.when_under(key, lease),
        }
    }

    /// Puts a key under a lease of this ID.
    pub(crate) fn put(mut self, key: &str, value: impl Into<Vec<u8>>, lease: i64) -> Self {
        let value = value.into();
        self.puts = true;
        self.bytes += key.len() + value.len();
        self.then.push(TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease))));
        self
    }

    /// Puts the keys of a grant under its lease.
    pub(crate) fn put_grant(self, keys: &GrantKeys, record: Vec<u8>, lease: &Lease) -> Self {
        let op = self.put(keys.record(), record, lease.id);
        let request = keys.shared.as_ref().and_then(|shared| shared.request.as_ref());
        let op = match request {
            Some((key, value)) => op.put(key, value.as_str(), lease.id),
            None => op,
        };
        Self { lease: Some(*lease), ..op }
    }

    /// Deletes the keys of a grant.
    pub(crate) fn delete_grant(self, keys: &GrantKeys) -> Self {
        let op = self.delete(keys.record());
        match keys.request() {
            Some(request) => op.delete(request),
            None => op,
        }
    }

    /// Deletes a key.
    pub(crate) fn delete(mut self, key: &str) -> Self {
        self.bytes += key.len();
        self.then.push(TxnOp::delete(key, None));
        self
    }

    /// Reads a key, but not its value, if a comparison fails.
    pub(crate) fn or_get(mut self, key: &str) -> Self {
        self.bytes += key.len();
        self.otherwise.push(TxnOp::get(key, Some(GetOptions::new().with_keys_only())));
        self
    }

    /// Reads the first of the keys that begin with `prefix`, but not its value, if a
    /// comparison fails.
    pub(crate) fn or_get_first_below(mut self, prefix: &str) -> Self {
        self.bytes += 2 * prefix.len();
        let options = GetOptions::new().with_range(range_end(prefix)).with_limit(1);
        self.otherwise.push(TxnOp::get(prefix, Some(options.with_keys_only())));
        self
    }

    fn when(mut self, key: &str, compare: Compare) -> Self {
        self.bytes += key.len();
        self.when.push(compare);
        self
    }

    /// Its approximate size in a request.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes + OVERHEAD_BYTES
    }

    /// How many operations it takes up in a nested transaction.
    pub(crate) fn nested_ops(&self) -> usize {
        self.when.len().max(self.then.len()).max(self.otherwise.len())
    }

    /// How many comparisons it has, and how many operations in each branch.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> [usize; 3] {
        [self.when.len(), self.then.len(), self.otherwise.len()]
    }

    /// The transaction.
    pub(crate) fn txn(&self) -> Txn {
        Txn::new()
            .when(self.when.clone())
            .and_then(self.then.clone())
            .or_else(self.otherwise.clone())
    }
}

/// The answer to an [`Op`] that was committed.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// Whether all comparisons held.
    pub(crate) succeeded: bool,
    /// The revision after the batch, which is that of everything written in it.
    pub(crate) revision: Revision,
    /// When the batch was sent.
    pub(crate) sent: lock::Instant,
    /// The answers to the operations of the branch that was taken.
    pub(crate) responses: Vec<TxnOpResponse>,
}

impl Reply {
    /// The pair that the first read of a failed write found.
    pub(crate) fn pair(&self) -> Option<&KeyValue> {
        self.pair_at(0)
    }

    /// The pair that a read of a failed write found.
    pub(crate) fn pair_at(&self, read: usize) -> Option<&KeyValue> {
        match self.responses.get(read)? {
            TxnOpResponse::Get(get) => get.kvs().first(),
            _ => None,
        }
    }
}
