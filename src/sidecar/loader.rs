//! From component YAML to the stores that an app can name, at the start and
//! whenever a file changes.

use std::{path::PathBuf, sync::Arc};

use tokio::{sync::mpsc, time::timeout};
use tracing::{info, warn};

use super::{
    prefix::{self, KeyPrefix},
    stores::{NamedStore, Stores},
};
use crate::{
    backend::{
        self, Kind,
        pluggable::{PluggableComponent, socket_path},
    },
    lock::{Clock, LockError, Store, Violation},
    manifest::{Change, Component, PropertyError, Secrets, Surroundings},
};

/// Why a component's store is not there.
#[derive(Debug, thiserror::Error)]
pub enum LoadStoreError {
    /// Its YAML is wrong.
    #[error(transparent)]
    Properties(#[from] PropertyError),
    /// Its metadata is wrong.
    #[error("component {0}: {1}")]
    Metadata(String, LockError),
    /// Its backend was not reached, or not in time.
    #[error("component {0} is not initialised: {1}")]
    Unavailable(String, String),
}

impl LoadStoreError {
    /// With the place where the component was read.
    fn at(self, component: &Component) -> Self {
        let named = |name| format!("{name} ({})", component.origin);
        match self {
            Self::Properties(_) => self,
            Self::Metadata(name, error) => Self::Metadata(named(name), error),
            Self::Unavailable(name, why) => Self::Unavailable(named(name), why),
        }
    }
}

/// Opens stores as their components say.
#[derive(Clone)]
pub(super) struct Loader {
    pub(super) stores: Stores,
    pub(super) surroundings: Surroundings,
    pub(super) secrets: Arc<dyn Secrets>,
    /// Where pluggable components have their sockets.
    pub(super) sockets: PathBuf,
}

impl Loader {
    /// Opens a component's store; does nothing for a component that is no lock
    /// store. With `ignoreErrors`, a failure is only logged.
    pub(super) async fn load(&self, component: &Component) -> Result<(), LoadStoreError> {
        let Some(backend) = component.lock_type() else { return Ok(()) };
        let opened = self.open(component, &backend).await.map_err(|error| error.at(component));
        match opened {
            Ok(store) => {
                info!(store = component.name, kind = component.kind, "lock store loaded");
                self.stores.insert(store);
                Ok(())
            }
            Err(error) if component.ignore_errors => {
                warn!(%error, "ignored, as ignoreErrors asks");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Follows what changes, until that ends. A component that fails keeps what
    /// it had before.
    pub(super) async fn follow(self, mut changes: mpsc::Receiver<Change>) {
        while let Some(change) = changes.recv().await {
            match change {
                Change::Added(component) | Change::Replaced(component) => {
                    if let Err(error) = self.load(&component).await {
                        warn!(%error, "the component stays as it was");
                    }
                }
                Change::Removed(component) => self.remove(&component),
            }
        }
    }

    fn remove(&self, component: &Component) {
        if let Some(store) = self.stores.get(&component.name) {
            self.stores.remove(&component.name);
            store.store().drain();
            info!(store = component.name, "lock store removed; what is held stays held");
        }
    }

    async fn open(
        &self,
        component: &Component,
        backend: &str,
    ) -> Result<NamedStore, LoadStoreError> {
        let name = component.name.clone();
        if !component.is_first_version() {
            let problem = format!("is {:?}; lock stores have v1 only", component.version);
            let violation = Violation::new("spec.version", problem);
            return Err(LoadStoreError::Metadata(name, violation.into()));
        }
        let properties =
            component.properties(&self.surroundings, self.secrets.as_ref()).await?;
        let key_prefix = KeyPrefix::of(
            properties.iter().map(|(key, value)| (&**key, &**value)),
        )
        .map_err(|violation| LoadStoreError::Metadata(name.clone(), violation.into()))?;
        let opening = async {
            match Kind::named(backend) {
                Some(kind) => {
                    let own = properties
                        .into_iter()
                        .filter(|(key, _)| !key.eq_ignore_ascii_case(prefix::PROPERTY));
                    kind.open(own, Clock::system()).await
                }
                None => self.pluggable(component, backend, properties).await,
            }
        };
        let store = match timeout(component.init_timeout, opening).await {
            Ok(Ok(store)) => store,
            Ok(Err(error @ LockError::InvalidMetadata(_))) => {
                return Err(LoadStoreError::Metadata(name, error));
            }
            Ok(Err(error)) => return Err(LoadStoreError::Unavailable(name, error.to_string())),
            Err(_) => {
                let why = format!("not within its initTimeout of {:?}", component.init_timeout);
                return Err(LoadStoreError::Unavailable(name, why));
            }
        };
        let (kind, version) = (component.kind.clone(), component.version.clone());
        Ok(NamedStore::new(name, kind, version, key_prefix, store))
    }

    async fn pluggable(
        &self,
        component: &Component,
        backend: &str,
        properties: std::collections::BTreeMap<String, String>,
    ) -> Result<Store, LockError> {
        let socket = socket_path(&self.sockets, backend)
            .map_err(|violation| LockError::InvalidMetadata(vec![violation]))?;
        let is_there = socket.exists();
        let opened = PluggableComponent {
            socket,
            instance: component.name.clone(),
            properties,
            init_timeout: component.init_timeout,
        }
        .open()
        .await;
        match opened {
            // Rather a misspelt type than a component that is late.
            Err(LockError::StoreUnavailable(why)) if !is_there => {
                let hint = backend::unknown_type(backend);
                Err(LockError::StoreUnavailable(format!("{why}; {hint}").into()))
            }
            opened => opened,
        }
    }
}
