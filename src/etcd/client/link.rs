//! One open connection to etcd.

use std::sync::Arc;

use etcd_client::Client;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::{
    silence::LastAnswer,
    terms::{Headed, Terms},
};

/// Over which connection and in which term a lease was granted.
///
/// Two rules depend on it. An idle lease is reused only if both are still the same
/// ([`Origin::allows_reuse`]). A live grant outlives its connection, because its unchanged
/// key shows that the data set is the same, but it moves to a new lease when the term has
/// changed ([`Terms`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The number of the connection.
    pub(crate) connection: u64,
    /// The number of the leader's term, as [`Terms`] counts them.
    pub(crate) term: u64,
}

impl Origin {
    /// Whether an idle lease from here may be used for a new grant at `now`. Over another
    /// connection etcd may have been restored from a snapshot, in which an earlier grant
    /// still lies under the lease. In another term a former leader may revoke it.
    pub(crate) fn allows_reuse(self, now: Self) -> bool {
        self == now
    }
}

/// One open connection, to one endpoint.
pub(crate) struct Link {
    pub(super) generation: u64,
    pub(super) terms: Arc<Terms>,
    pub(super) client: Client,
    /// When the current login was asked for; locked while a new one is.
    pub(super) login: tokio::sync::Mutex<Instant>,
    /// When requests were last answered.
    pub(super) last_answer: LastAnswer,
    /// Cancelled when the connection was found lost.
    pub(super) lost: CancellationToken,
}

impl Link {
    /// Its clients. Clone only the one that you need: together they take several kilobytes,
    /// in every write.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Records the raft term of an answer.
    pub(crate) fn note(&self, answer: &impl Headed) {
        // After a loss, another data set may count its terms from the start.
        if !self.lost.is_cancelled() {
            self.terms.note(answer.raft_term());
        }
    }

    /// The origin of a lease that is asked for now, over this connection.
    pub(crate) fn origin(&self) -> Origin {
        Origin { connection: self.generation, term: self.terms.current() }
    }

    /// Whether the connection was found lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Waits until the connection is found lost.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}
