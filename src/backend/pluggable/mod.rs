//! Lock stores of other processes: any `lock.NAME` that a pluggable component
//! serves at `NAME.sock`, behind the port that the built-in backends have.
//!
//! Such a store owes what alpha2 says and what its `Features` declare, which
//! is less than the port asks for in three places. Where the protocol has no
//! word for a grant among several of one lock ID, safety comes first and the
//! TTL settles the rest:
//! - An unlock, or a force, whose outcome is unknown is not sent again: it
//!   could end a later grant.
//! - An attempt under a caller's own lock ID is undone only if it is known to
//!   have been granted: the ID may have an earlier grant.
//! - An attempt with a `request_id` is not undone: it may have found the grant
//!   of an earlier one, and a repetition finds it again.
//! - A store that grants after it was told that the caller went away keeps
//!   that grant until its TTL ends.

pub(crate) mod backend;
mod connection;
mod rpc;
pub(crate) mod status;
mod tries;
pub(crate) mod wire;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use crate::{
    lock::{LockError, Settings, Store},
    properties::Properties,
};
use backend::Pluggable;
use connection::{Connection, Instance};

pub use connection::socket_path;

/// A component that another process serves.
#[derive(Clone)]
pub struct PluggableComponent {
    /// The socket; see [`socket_path`].
    pub socket: PathBuf,
    /// The component's name, sent as `x-component-instance`.
    pub instance: String,
    /// Its metadata items, as the store's Init gets them.
    pub properties: BTreeMap<String, String>,
    /// How long Init may take; daprd's default is 5 s.
    pub init_timeout: Duration,
}

impl PluggableComponent {
    /// Initialises the instance and opens it as a store. Must be called within
    /// a runtime.
    ///
    /// What the store refuses is [`LockError::InvalidMetadata`]; a socket that
    /// is not there or not answering is [`LockError::StoreUnavailable`], and
    /// names it.
    pub async fn open(self) -> Result<Store, LockError> {
        let settings = settings(&self.properties);
        let instance = Instance::new(&self.instance, self.properties, self.init_timeout)?;
        let connection = Connection::open(self.socket, instance).await?;
        let backend = Pluggable::new(connection, settings.operation_timeout);
        Ok(Store::new(Arc::new(backend), settings))
    }
}

impl std::fmt::Debug for PluggableComponent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluggableComponent")
            .field("socket", &self.socket)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

/// The limits, as far as the properties name them in our own way: the keys are
/// the store's, which may mean something else by them and says so itself.
fn settings(properties: &BTreeMap<String, String>) -> Settings {
    Properties::new(properties.clone()).settings()
}
