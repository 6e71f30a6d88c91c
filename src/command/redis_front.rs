//! `leasehold redis-front`: from its command line to a front that serves.

use std::{env, future::ready, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::{sync::mpsc, time::timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::warn;

use super::StartError;
use crate::{
    component::socket_folder,
    config::manifest::{Component, Environment, NoSecrets, Resources},
    front::{FindStore, Front, FrontArgs},
    lock::LockError,
    sidecar::{
        loader::{LoadStoreError, Loader},
        stores::Stores,
    },
};

/// How long the store may take to settle what is left at the end.
const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// A front that serves.
#[derive(Debug)]
pub struct Serving {
    front: Front,
    stores: Stores,
    _connecting: AbortOnDropHandle<()>,
}

/// Opens the store, and begins to serve it. A store that is not reached is tried again: until
/// then commands are answered with an error.
pub async fn start(args: &FrontArgs) -> Result<Serving, StartError> {
    let options = args.options().map_err(StartError::Configuration)?;
    let environment = Environment::of_process(None);
    let resources =
        Resources { folders: args.resources_path.clone(), environment: environment.clone() };
    let loaded = resources.load()?;
    if let Some(problem) = loaded.problem() {
        return Err(StartError::Configuration(problem));
    }
    let component = named(&loaded.components, &args.store, "--store")?;
    let loader = Loader {
        stores: Stores::default(),
        environment,
        secrets: Arc::new(NoSecrets),
        sockets: socket_folder(None, |name| env::var_os(name)),
    };
    let mut late = Vec::new();
    match loader.begin(component).await {
        Ok(again) => late.extend(again.cloned()),
        Err(error @ LoadStoreError::Unavailable(..)) => {
            warn!(%error, "not connected yet; trying again");
            late.push(component.clone());
        }
        Err(error) => return Err(error.into()),
    }
    let stores = loader.stores.clone();
    let front = Front::start(options, find(stores.clone(), args.store.clone())).await?;
    let (_, no_changes) = mpsc::channel(1);
    let connecting = AbortOnDropHandle::new(tokio::spawn(loader.follow(no_changes, late)));
    Ok(Serving { front, stores, _connecting: connecting })
}

impl Serving {
    /// Serves until `stop`, then drains.
    pub async fn run(self, stop: CancellationToken) {
        stop.cancelled().await;
        self.front.drain().await;
        self.stores.drain();
        let stores = self.stores.all_and_earlier();
        let retired = join_all(stores.iter().map(|store| store.retire()));
        if timeout(SETTLED_WITHIN, retired).await.is_err() {
            warn!("some operations are still unsettled; what they left ends with its TTL");
        }
    }
}

/// The lock component of this name.
pub(super) fn named<'a>(
    components: &'a [Component],
    name: &str,
    option: &str,
) -> Result<&'a Component, StartError> {
    let stores = || components.iter().filter(|component| component.lock_type().is_some());
    stores().find(|component| component.name == name).ok_or_else(|| {
        let names: Vec<_> = stores().map(|component| component.name.as_str()).collect();
        let there = if names.is_empty() {
            "has no lock store".to_owned()
        } else {
            format!("has the lock stores {}", names.join(", "))
        };
        StartError::Configuration(format!(
            "{option}: there is no lock store {name:?}; --resources-path {there}"
        ))
    })
}

/// Finds a store among those of the process.
pub(super) fn find(stores: Stores, name: String) -> FindStore {
    Arc::new(move || {
        let store = stores.newest(&name).map(|store| store.store().clone());
        let found = store.ok_or_else(|| {
            let why = format!("the store {name:?} is not connected; leasehold's log says why");
            LockError::StoreUnavailable(why.into())
        });
        Box::pin(ready(found))
    })
}
