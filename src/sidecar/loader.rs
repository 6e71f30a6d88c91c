//! Opens stores from component YAML, at the start and when a component appears.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use futures_util::future::join_all;
use leasehold_held::LockStore;
use leasehold_lock::{
    Clock, Kinds, LockError, Store, Violation,
    observe::{Observe, Observers},
};
use leasehold_manifest::{Change, Component, Environment, PropertyError, Reloads, Secrets};
use leasehold_pluggable::{PluggableComponent, socket_path};
use leasehold_util::retry::Backoff;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::{Instrument as _, info, info_span, warn};

use super::{
    app_names::{self, AppNames},
    stores::{NamedStore, Stores},
};

/// The delay before a component with an unreachable backend is tried again; it
/// doubles up to the limit.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(500);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// Why a component's store could not be opened.
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
    /// Whether a retry can succeed with unchanged YAML.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Properties(error) => error.may_pass(),
            Self::Metadata(..) => false,
            Self::Unavailable(..) => true,
        }
    }
}

/// Opens stores as their components say.
#[derive(Clone)]
pub struct Loader {
    /// The stores that are built in.
    pub kinds: Kinds,
    /// The open stores, to which new ones are added.
    pub stores: Stores,
    /// The environment that templates and scopes refer to.
    pub environment: Environment,
    /// The source of secrets.
    pub secrets: Arc<dyn Secrets>,
    /// The folder of pluggable components' sockets.
    pub sockets: PathBuf,
    /// Observe the stores.
    pub observers: Observers,
    /// Learns which components whose YAML changed cannot be loaded, or are loaded already and
    /// keep their settings until a restart.
    pub reloads: Reloads,
}

impl Loader {
    /// Opens the store of a component at the start. With `ignoreErrors`, a
    /// failure is only logged; returns the component if it is to be tried
    /// again.
    pub async fn begin<'a>(
        &self,
        component: &'a Component,
    ) -> Result<Option<&'a Component>, LoadStoreError> {
        match self.load(component).await {
            Ok(()) => Ok(None),
            Err(error) if component.ignore_errors => {
                warn!(%error, "ignored, as ignoreErrors asks");
                self.note_failed(component, &error);
                Ok(error.may_pass().then_some(component))
            }
            Err(error) => Err(error),
        }
    }

    /// Follows changes of the YAML since `components` were read. Loads components that appear.
    /// A loaded component stays unchanged, and the change is logged. A component with an
    /// unreachable backend, and each of `late`, is tried again until it is reached or changes.
    pub async fn follow(
        self,
        mut changes: mpsc::Receiver<Change>,
        components: Vec<Component>,
        late: Vec<Component>,
    ) {
        let load = |component: Component| {
            let name = component.name.clone();
            let loading = self.clone().load_until_reached(component);
            (name, AbortOnDropHandle::new(tokio::spawn(loading)))
        };
        let by_name = |component: Component| (component.name.clone(), component);
        let mut components: HashMap<_, _> = components.into_iter().map(by_name).collect();
        let mut loading: HashMap<_, _> = late.into_iter().map(load).collect();
        while let Some(change) = changes.recv().await {
            let (Change::Set(component) | Change::Removed(component)) = &change;
            // The earlier version must not be loaded after the present one.
            if let Some(before) = loading.remove(&component.name) {
                before.abort();
                let _ = before.await;
            }
            if self.stores.get(&component.name).is_some() {
                let loaded = components.get(&component.name);
                if is_as_loaded(loaded.unwrap_or(component), &change) {
                    self.reloads.applied(&component.name);
                } else {
                    self.reloads.not_applied(&component.name);
                }
                continue;
            }
            self.stores.forget(&component.name);
            match change {
                Change::Set(component) => {
                    self.reloads.not_applied(&component.name);
                    components.extend([by_name(component.clone())]);
                    loading.extend([load(component)]);
                }
                Change::Removed(component) => {
                    components.remove(&component.name);
                    self.reloads.applied(&component.name);
                }
            }
        }
        join_all(loading.into_values()).await;
    }

    async fn load_until_reached(self, component: Component) {
        let mut backoff = Backoff::new(RETRY_DELAY_MIN, RETRY_DELAY_MAX);
        while let Err(error) = self.load(&component).await {
            self.note_failed(&component, &error);
            if !error.may_pass() {
                warn!(%error, "the component is not loaded until its YAML changes");
                self.reloads.not_applied(&component.name);
                return;
            }
            let delay = backoff.next_delay();
            warn!(%error, again_in = ?delay, "the component is not loaded yet");
            sleep(delay).await;
        }
        self.reloads.applied(&component.name);
    }

    /// Lets calls for the store be answered with the reason why it is not open.
    fn note_failed(&self, component: &Component, error: &LoadStoreError) {
        let observer = (self.observers)(&component.name, &component.kind);
        self.stores.note_failed(&component.name, &error.to_string(), observer);
    }

    /// Opens a component's store; does nothing for a component that is no lock
    /// store.
    async fn load(&self, component: &Component) -> Result<(), LoadStoreError> {
        let Some(backend) = component.lock_type() else { return Ok(()) };
        let store = self.open(component, &backend).await?;
        info!(store = component.name, kind = component.kind, "lock store loaded");
        self.stores.insert(store);
        Ok(())
    }

    async fn open(
        &self,
        component: &Component,
        backend: &str,
    ) -> Result<NamedStore, LoadStoreError> {
        let name = &component.name;
        let wrong =
            |error| LoadStoreError::Metadata(format!("{name} ({})", component.origin), error);
        let unavailable =
            |why| LoadStoreError::Unavailable(format!("{name} ({})", component.origin), why);
        if !component.is_first_version() {
            let problem = format!("is {:?}; lock stores have v1 only", component.version);
            let violation = Violation::new("spec.version", problem);
            return Err(wrong(violation.into()));
        }
        let properties = component.properties(&self.environment, self.secrets.as_ref()).await?;
        let names = AppNames::of_items(
            properties.iter().map(|(key, value)| (&**key, &**value)),
            name,
            self.environment.app_id.as_deref().unwrap_or_default(),
        )
        .map_err(|violation| wrong(violation.into()))?;
        let built_in = self.kinds.named(backend);
        if let Some(problem) = self.kinds.left_out(backend) {
            let violation = Violation::new("spec.type", problem);
            return Err(wrong(violation.into()));
        }
        let observer = (self.observers)(name, &component.kind);
        let opening = async {
            match built_in {
                Some(kind) => {
                    let own = properties
                        .into_iter()
                        .filter(|(key, _)| !app_names::is_key_prefix(key));
                    kind.open_observed(own, Clock::system(), None, observer).await
                }
                None => self.pluggable(component, backend, properties, observer).await,
            }
        };
        let span = info_span!("component", %name, file = %component.origin);
        let opening = opening.instrument(span);
        let store = match timeout(component.init_timeout, opening).await {
            Ok(Ok(store)) => store,
            Ok(Err(error @ LockError::InvalidMetadata(_))) => {
                return Err(wrong(error));
            }
            Ok(Err(error)) => return Err(unavailable(error.as_cause().to_string())),
            Err(_) => {
                let why = format!("not within its initTimeout of {:?}", component.init_timeout);
                return Err(unavailable(why));
            }
        };
        let (kind, version) = (component.kind.clone(), component.version.clone());
        let store = match built_in {
            Some(_) => LockStore::new(name.as_str(), store),
            None => LockStore::third_party(name.as_str(), store),
        };
        Ok(NamedStore::new(kind, version, names, store))
    }

    async fn pluggable(
        &self,
        component: &Component,
        backend: &str,
        properties: std::collections::BTreeMap<String, String>,
        observer: Arc<dyn Observe>,
    ) -> Result<Store, LockError> {
        let socket = socket_path(&self.sockets, backend)
            .map_err(|violation| LockError::InvalidMetadata(vec![violation]))?;
        let is_there = socket.exists();
        let opened = PluggableComponent {
            socket,
            instance: component.name.clone(),
            properties,
            init_timeout: component.init_timeout,
            observer,
        }
        .open()
        .await;
        match opened {
            // A misspelt type is more likely than a late component.
            Err(LockError::StoreUnavailable(why)) if !is_there => {
                let hint = self.kinds.unknown(backend);
                Err(LockError::StoreUnavailable(format!("{why}; {hint}").into()))
            }
            opened => opened,
        }
    }
}

/// Whether a component with an open store is still as it was loaded. Its store keeps the `loaded`
/// settings, and the change is logged.
fn is_as_loaded(loaded: &Component, change: &Change) -> bool {
    let component = &loaded.name;
    match change {
        Change::Removed(_) => warn!(
            "component {component:?} is gone from {}; its lock store goes on unchanged: restart \
             the sidecar to apply",
            loaded.origin
        ),
        Change::Set(now) if now.lock_type().is_none() => warn!(
            "component {component:?} is now of type {}; its lock store goes on unchanged until \
             the sidecar is restarted",
            now.kind
        ),
        Change::Set(now) => match now.differences(loaded) {
            fields if fields.is_empty() => {
                info!("component {component:?} is again as it was loaded ({})", now.origin);
                return true;
            }
            fields => warn!(
                "component {component:?} has changed ({}): {}; its lock store goes on unchanged: \
                 restart the sidecar to apply",
                now.origin,
                fields.join(", ")
            ),
        },
    }
    false
}
