//! Access to etcd for all parts: the names of the store's keys, the connection, and the
//! batched writes and reads over it.

use std::sync::Arc;

use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use leasehold_lock::{OpenError, Violation, observe::Observe};
use tokio::time::Instant;

use crate::{
    background::Background,
    client::{
        connection::Connection,
        failure::{Failure, Refusal},
        reads::Reads,
    },
    commit::committer::Committer,
    config::Config,
    keys::Keys,
};

/// See the module.
pub(super) struct Etcd {
    pub(super) keys: Keys,
    pub(super) connection: Arc<Connection>,
    pub(super) committer: Arc<Committer>,
    pub(super) reads: Arc<Reads>,
    /// How many operations a transaction may have.
    txn_ops_max: usize,
    pub(super) background: Background,
}

impl Etcd {
    /// Connects with the first request. All tasks of the backend end with `background`.
    pub(super) fn new(config: Config, observer: Arc<dyn Observe>) -> Arc<Self> {
        let background = Background::default();
        let (keys, txn_ops_max) = (Keys::new(&config.key_prefix), config.txn_ops_max);
        let connection = Arc::new(Connection::new(config, &keys, observer));
        let committer = Committer::new(Arc::clone(&connection), txn_ops_max, &background);
        let reads = Reads::new(Arc::clone(&connection), txn_ops_max, &background);
        Arc::new(Self { keys, connection, committer, reads, txn_ops_max, background })
    }

    /// Separate reads of small answers, which do not delay the others.
    pub(super) fn reads_apart(&self) -> Arc<Reads> {
        Reads::new(Arc::clone(&self.connection), self.txn_ops_max, &self.background)
    }

    /// Reads of large answers: each is alone in its transaction.
    pub(super) fn large_reads(&self) -> Arc<Reads> {
        Reads::new(Arc::clone(&self.connection), 1, &self.background)
    }

    /// Checks that the user may read and write the keys. It sends a write that changes nothing,
    /// but that only a user who may write the keys may send: etcd also checks the branch that
    /// is not taken.
    pub(super) async fn check_access(&self, until: Instant) -> Result<(), Failure> {
        let key = self.keys.session("access");
        let link = self.connection.link(until).await?;
        let txn = Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Less, 0)])
            .and_then([TxnOp::put(key, "", None)]);
        let mut client = link.client().kv_client();
        match self.connection.answer(&link, until, Box::pin(client.txn(txn))).await {
            // Without space, existing locks can still be renewed and released.
            Ok(_) | Err(Failure::OutOfSpace(_)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Why the store cannot be opened, and what helps.
    pub(super) fn open_error(&self, failure: Failure, with_user: bool) -> OpenError {
        let (field, problem) = match failure {
            Failure::Refused(Refusal::Permission, _) => (
                "keyPrefixPath",
                format!(
                    "is not the user's to read and write; grant it with `etcdctl role \
                     grant-permission --prefix=true ROLE readwrite '{}'`",
                    self.keys.root()
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
}
