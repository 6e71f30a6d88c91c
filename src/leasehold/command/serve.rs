//! `leasehold serve`: the component, from its options to the end of its drain.

use std::{collections::BTreeSet, env, sync::Arc};

use futures_util::future::join_all;
use leasehold_component::{Component, DRAIN_MAX, Socket, socket_folder};
use leasehold_manifest::{self as manifest, Environment, Resources};
use leasehold_metrics::Role;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{info, warn};

use super::{ServeOptions, StartError, StoreOption, instances, metrics::Observed};

/// Components that are being served, with the tasks that initialise instances
/// on their own.
pub struct Serving {
    components: Vec<Component>,
    observed: Observed,
    _initialising: Arc<Vec<AbortOnDropHandle<()>>>,
}

/// Opens every socket and starts to serve.
pub async fn start(options: &ServeOptions) -> Result<Serving, StartError> {
    let stores = options.stores();
    must_differ(&stores)?;
    let resources = Resources {
        folders: options.resources_path.clone(),
        environment: Environment::of_process(None),
    };
    let loaded = resources.load_whole()?;
    let manifests = loaded.components;
    for manifest in &manifests {
        warn_unless_served(manifest, &stores);
    }
    let folder = socket_folder(options.socket_folder.clone(), |name| env::var_os(name));
    let observed = Observed::start(options.metrics.address(), Role::Stores).await?;
    let (mut components, mut initialising) = (Vec::new(), Vec::new());
    for StoreOption { kind, socket: name } in stores {
        let mut to_initialise = Vec::new();
        for manifest in manifests.iter().filter(|manifest| is_served_at(manifest, &name)) {
            // daprd has secret stores and the app's ID.
            if manifest.waits_for_daprd(&resources.environment).is_some() {
                let store = &manifest.name;
                info!(store, "waits for Init: its YAML needs daprd to resolve it");
                continue;
            }
            let own = instances::resolve(kind, manifest, &resources.environment).await?;
            to_initialise.push(own);
        }
        let path = folder.join(format!("{name}.sock"));
        let socket = Socket::open(&path, Some(options.socket_mode), "--socket-folder").await?;
        info!(store = kind.name, socket = %socket.path().display(), "listening");
        let label = move |instance: &str| format!("{name}/{instance}");
        let instances = instances::of_kind(kind, observed.observers(), label);
        for own in to_initialise {
            initialising.push(instances::begin(&instances, own));
        }
        components.push(Component::start(socket, instances, kind.commits_groups).await?);
    }
    let initialising = Arc::new(initialising);
    let opening = Arc::clone(&initialising);
    observed.started(move || opening.iter().all(AbortOnDropHandle::is_finished));
    Ok(Serving { components, observed, _initialising: initialising })
}

impl Serving {
    /// Serves until `stop`, then drains.
    pub async fn run(self, stop: CancellationToken) {
        stop.cancelled().await;
        self.drain().await;
    }

    /// Drains every component, all at the same time.
    pub async fn drain(self) {
        self.observed.drain();
        let until = Instant::now() + DRAIN_MAX;
        join_all(self.components.iter().map(Component::stop_serving)).await;
        join_all(self.components.iter().map(|component| component.settle(until))).await;
    }
}

fn is_served_at(manifest: &manifest::Component, socket: &str) -> bool {
    manifest.lock_type().is_some_and(|name| name == socket.to_lowercase())
}

/// Warns of a lock store in the YAML whose type no socket serves.
fn warn_unless_served(manifest: &manifest::Component, stores: &[StoreOption]) {
    let Some(name) = manifest.lock_type() else { return };
    if !stores.iter().any(|store| is_served_at(manifest, &store.socket)) {
        let served: Vec<_> =
            stores.iter().map(|store| format!("lock.{}", store.socket)).collect();
        warn!(
            store = manifest.name,
            "its type lock.{name} is not served here, but {}",
            served.join(", ")
        );
    }
}

fn must_differ(stores: &[StoreOption]) -> Result<(), StartError> {
    let mut names = BTreeSet::new();
    match stores.iter().find(|store| !names.insert(&store.socket)) {
        None => Ok(()),
        Some(twice) => Err(StartError::Configuration(format!(
            "--store: two stores would share the socket {:?}; name one of them, as in \
             --store {}=NAME",
            twice.socket, twice.kind.name
        ))),
    }
}
