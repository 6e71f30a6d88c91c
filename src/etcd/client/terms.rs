//! The terms of etcd's leaders, which every answer contains.
//!
//! A leader that was paused and comes back revokes the leases that have expired by its own
//! count, although its successor has prolonged them (etcd-io/etcd#15247). It does not know
//! of leases that were granted since. So a lease is trusted only in the term in which it
//! was granted.

use etcd_client::{
    GetResponse, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseRevokeResponse,
    ResponseHeader, TxnResponse,
};
use parking_lot::Mutex;
use tracing::info;

/// Counts the terms, over all connections.
#[derive(Debug, Default)]
pub(crate) struct Terms(Mutex<Term>);

/// Both numbers change together: an answer that shows the new raft term must not find the old
/// count.
#[derive(Debug, Default)]
struct Term {
    /// The raft term as etcd numbers it; 0 before the first answer.
    raft: u64,
    /// How often it has changed. Unlike raft's own number, which starts again in a restored
    /// data set, this one never repeats.
    changes: u64,
}

impl Terms {
    /// The number of the current term. Read before a request is sent, it is never later than
    /// the term in which etcd carries out the request.
    pub(crate) fn current(&self) -> u64 {
        self.0.lock().changes
    }

    /// Records the raft term of an answer. A member that lags behind may name an earlier
    /// one.
    pub(crate) fn note(&self, raft_term: u64) {
        self.change(|before| raft_term.max(before));
    }

    /// Records the raft term of the first, linearizable, answer over a new
    /// connection. If it is lower, the data set was replaced.
    pub(crate) fn begin(&self, raft_term: u64) {
        self.change(|_| raft_term);
    }

    fn change(&self, now: impl FnOnce(u64) -> u64) {
        let mut term = self.0.lock();
        let raft_term = now(term.raft);
        let before = std::mem::replace(&mut term.raft, raft_term);
        if before == 0 || before == raft_term {
            return;
        }
        term.changes += 1;
        drop(term);
        info!(raft_term, "etcd has elected a leader");
    }
}

/// An answer with a header.
pub(crate) trait Headed {
    /// The raft term in it; 0 if there is none.
    fn raft_term(&self) -> u64;
}

macro_rules! headed {
    ($($answer:ty),* $(,)?) => {
        $(impl Headed for $answer {
            fn raft_term(&self) -> u64 {
                self.header().map_or(0, ResponseHeader::raft_term)
            }
        })*
    };
}

headed!(
    GetResponse,
    LeaseGrantResponse,
    LeaseKeepAliveResponse,
    LeaseRevokeResponse,
    TxnResponse,
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Trap: etcd 33
    #[test]
    fn a_term_is_another_only_if_its_number_is() {
        let terms = Terms::default();
        terms.begin(5);
        terms.note(5);
        terms.begin(5);
        assert_eq!(terms.current(), 0, "the same leader, over another connection");
        terms.note(4);
        assert_eq!(terms.current(), 0, "a member that lags");
        terms.note(6);
        assert_eq!(terms.current(), 1, "an election");
        terms.begin(2);
        assert_eq!(terms.current(), 2, "a restored data set");
        terms.note(3);
        assert_eq!(terms.current(), 3, "an election there");
    }
}
