//! Third-party lock stores: any `lock.NAME` that a pluggable component serves at
//! `NAME.sock`, as an implementation of [`Backend`](leasehold_lock::Backend).
//!
//! Such a store promises what alpha2 specifies and what its `Features` declare, which is
//! less than a backend must do. The protocol cannot name one grant among several with the
//! same lock ID, so in doubt a grant is left to its TTL:
//! - An unlock, or a force, whose outcome is unknown is not sent again: it
//!   could end a later grant.
//! - An attempt with a lock ID that the caller chose is undone only if it is known to have
//!   been granted: an earlier grant may have the same ID.
//! - An attempt with a `request_id` is not undone: it may have found the grant of an earlier
//!   attempt, and a repetition finds it again.
//! - Reported locks that were not asked for are ignored, and the store is never asked to
//!   end more than one grant.
//! - A grant that the store makes after the caller went away lasts until its TTL ends.

mod attempts;
mod backend;
mod connection;
#[cfg(any(fuzzing, test))]
#[doc(hidden)]
pub mod fuzzing;
mod inspect;
mod of_sidecar;
mod outage;
mod rpc;
mod status;
mod views;
mod wire;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use backend::Pluggable;
use connection::{Connection, Instance};
use leasehold_lock::{
    LockError, Settings, Store,
    observe::{Observe, Unobserved},
    properties::Properties,
};

pub use connection::socket_path;
pub use of_sidecar::SidecarStore;

/// How long a component may take to answer a process that attaches to it.
const ATTACH_WITHIN: Duration = Duration::from_secs(5);

/// A component that another process serves.
#[derive(Clone)]
pub struct PluggableComponent {
    /// The socket; see [`socket_path`].
    pub socket: PathBuf,
    /// The component's name, sent as `x-component-instance`.
    pub instance: String,
    /// The metadata items of its Init.
    pub properties: BTreeMap<String, String>,
    /// How long Init may take; daprd's default is 5 s.
    pub init_timeout: Duration,
    /// Observes the store.
    pub observer: Arc<dyn Observe>,
}

impl PluggableComponent {
    /// Initialises the instance and opens it as a store. Must be called within
    /// a runtime.
    ///
    /// Metadata that the store refuses is [`LockError::InvalidMetadata`]. A socket that does
    /// not exist or does not answer is [`LockError::StoreUnavailable`], which names it.
    pub async fn open(self) -> Result<Store, LockError> {
        let settings = settings(&self.properties);
        let instance = Instance::new(&self.instance, Some(self.properties), self.init_timeout)?;
        connect(self.socket, instance, settings, self.observer).await
    }

    /// Opens an instance that another process has initialised, without Init, which would replace
    /// its settings. The instance's own limits are not known here.
    ///
    /// An instance that is not initialised is [`LockError::StoreUnavailable`], as is one that is
    /// lost later, until the other process initialises it again.
    pub async fn attach(socket: PathBuf, instance: &str) -> Result<Store, LockError> {
        let instance = Instance::new(instance, None, ATTACH_WITHIN)?;
        let absent = absent_ttl();
        let settings = Settings { ttl_default: absent, ttl_max: absent, ..Settings::default() };
        connect(socket, instance, settings, Unobserved::store()).await
    }
}

async fn connect(
    socket: PathBuf,
    instance: Instance,
    settings: Settings,
    observer: Arc<dyn Observe>,
) -> Result<Store, LockError> {
    let connection = Connection::open(socket, instance, Arc::clone(&observer)).await?;
    let backend = Pluggable::new(connection, settings.operation_timeout);
    Ok(Store::observed(Arc::new(backend), settings, observer))
}

impl std::fmt::Debug for PluggableComponent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluggableComponent")
            .field("socket", &self.socket)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

/// Stands for a TTL that is not sent, so that the store's own default holds: the default of a
/// store whose settings are not known here.
pub(crate) fn absent_ttl() -> Duration {
    Duration::from_secs(u32::MAX.into())
}

/// The limits that the properties have under leasehold's keys. The keys belong to the store,
/// which checks them itself, so invalid values are ignored here.
fn settings(properties: &BTreeMap<String, String>) -> Settings {
    Properties::new(properties.clone()).settings()
}
