//! One write: a transaction that may travel in a batch.

use std::sync::Arc;

use etcd_client::{Compare, Txn, TxnOp, TxnOpResponse, proto::PbTxnOpRequest};
use tokio::time::Instant;

use crate::{
    backend::etcd::{client::failure::Refusal, lease::pool::Lease},
    lock::ResourceId,
};

/// Bytes that an operation costs besides its keys and values.
const OVERHEAD_BYTES: usize = 160;

/// A compared write. At most two comparisons and two operations a branch, which
/// is what a nested transaction may have when a batch is full.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    /// Whose holder key it writes: no other such write is in flight meanwhile.
    /// `None` for keys that nobody else writes.
    pub(crate) claims: Option<ResourceId>,
    /// Whether it makes a queue longer: such writes leave room for all others.
    pub(crate) enters: bool,
    pub(crate) when: Vec<Compare>,
    pub(crate) then: Vec<TxnOp>,
    pub(crate) otherwise: Vec<TxnOp>,
    /// Of keys and values together.
    pub(crate) bytes: usize,
    /// Not sent after this.
    pub(crate) until: Instant,
    /// The lease of a grant that it makes or moves. Not sent once that has too
    /// little left, nor in another era than its own (`Connection::era`).
    pub(crate) lease: Option<Lease>,
}

impl Op {
    /// The size it takes up in a request, about.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes + OVERHEAD_BYTES
    }

    /// Whether it needs space: etcd counts the puts of both branches, also of the
    /// one that is not taken.
    pub(crate) fn puts(&self) -> bool {
        let mut ops = self.then.iter().chain(&self.otherwise);
        ops.any(|op| matches!(PbTxnOpRequest::from(op.clone()), PbTxnOpRequest::RequestPut(_)))
    }

    /// The transaction.
    pub(crate) fn txn(&self) -> Txn {
        Txn::new()
            .when(self.when.clone())
            .and_then(self.then.clone())
            .or_else(self.otherwise.clone())
    }
}

/// What became of an [`Op`] that was committed.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// Which branch was taken.
    pub(crate) succeeded: bool,
    /// The revision after the batch, and that of what was written in it.
    pub(crate) revision: u64,
    /// When the batch was sent.
    pub(crate) sent: Instant,
    /// What the branch's operations answered.
    pub(crate) responses: Vec<TxnOpResponse>,
}

impl Reply {
    /// The first pair that the operation at `index` read or replaced.
    pub(crate) fn pair(&self, index: usize) -> Option<&etcd_client::KeyValue> {
        match self.responses.get(index)? {
            TxnOpResponse::Get(get) => get.kvs().first(),
            TxnOpResponse::Delete(deleted) => deleted.prev_kvs().first(),
            TxnOpResponse::Put(put) => put.prev_key(),
            TxnOpResponse::Txn(_) => None,
        }
    }
}

/// Why an [`Op`] was not committed, as far as known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpError {
    /// Its lease was no longer fresh enough when its turn came; not sent.
    Stale,
    /// Not sent, or certainly not applied.
    NotSent(Arc<str>),
    /// Refused, by itself.
    Refused(Refusal, Arc<str>),
    /// etcd has no space left. It may have been applied all the same, but it is
    /// no longer on its way.
    OutOfSpace(Arc<str>),
    /// It may have been applied, or may yet be.
    Unknown(Arc<str>),
}

impl OpError {
    /// The reason.
    pub(crate) fn why(&self) -> Arc<str> {
        match self {
            Self::Stale => "no fresh lease could be had in time".into(),
            Self::NotSent(why)
            | Self::Refused(_, why)
            | Self::OutOfSpace(why)
            | Self::Unknown(why) => Arc::clone(why),
        }
    }

    /// Whether another try may soon do better, once it is settled what became of
    /// this one.
    pub(crate) fn is_passing(&self) -> bool {
        !matches!(self, Self::OutOfSpace(_) | Self::Refused(..))
    }
}
