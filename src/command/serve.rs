//! `leasehold serve`: the component, from its options to the end of its drain.

use std::{collections::BTreeSet, env, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{info, warn};

use super::{ServeOptions, StartError, StoreOption, redis_front};
use crate::{
    backend::Kind,
    component::{Answers, Component, Instances, OpenInstance, Socket, socket_folder},
    config::manifest::{self, Environment, NoSecrets, Resources},
    front::{FindStore, Front},
    lock::{Clock, LockError},
    retry::Backoff,
};

/// How long to wait between attempts to initialise an instance.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

/// Components that are being served, with the tasks that initialise instances
/// on their own.
#[derive(Debug)]
pub struct Serving {
    components: Vec<Component>,
    front: Option<Front>,
    _initialising: Vec<AbortOnDropHandle<()>>,
}

/// Opens every socket and starts to serve.
pub async fn start(options: &ServeOptions) -> Result<Serving, StartError> {
    let stores = options.stores();
    let front = options.front.options().map_err(StartError::Configuration)?;
    must_differ(&stores)?;
    let resources = Resources {
        folders: options.resources_path.clone(),
        environment: Environment::of_process(None),
    };
    let loaded = resources.load()?;
    if let Some(problem) = loaded.problem() {
        return Err(StartError::Configuration(problem));
    }
    let manifests = loaded.components;
    for manifest in &manifests {
        warn_unless_served(manifest, &stores);
    }
    if let Some(front) = &front {
        redis_front::named(&manifests, &front.store, "--redis-front")?;
    }
    let mut behind_front = None;
    let folder = socket_folder(options.socket_folder.clone(), |name| env::var_os(name));
    let (mut components, mut initialising) = (Vec::new(), Vec::new());
    for StoreOption { kind, socket } in stores {
        let mine: Vec<_> =
            manifests.iter().filter(|manifest| is_served_at(manifest, &socket)).collect();
        let to_initialise = resolve(kind, &mine, &resources.environment).await?;
        let path = folder.join(format!("{socket}.sock"));
        let socket = Socket::open(&path, Some(options.socket_mode), "--socket-folder").await?;
        info!(store = kind.name, socket = %socket.path().display(), "listening");
        let open: OpenInstance = Arc::new(move |metadata, before| {
            Box::pin(async move { kind.open(metadata, Clock::system(), before.as_ref()).await })
        });
        let instances = Arc::new(Instances::new(open, kind.features));
        for own in to_initialise {
            if front.as_ref().is_some_and(|front| front.store == own.name) {
                behind_front = Some(find(Arc::clone(&instances), own.name.clone()));
            }
            // Before anything is served, so that no call is told NOT_INITIALIZED.
            instances.opening(
                &own.name,
                own.operation_timeout,
                "its backend is being connected",
            );
            let task = initialise(Arc::clone(&instances), own);
            initialising.push(AbortOnDropHandle::new(tokio::spawn(task)));
        }
        let answers = if kind.commits_groups { Answers::Together } else { Answers::AsTheyCome };
        components.push(Component::start(socket, instances, answers).await?);
    }
    let front = match (front, behind_front) {
        (None, _) => None,
        (Some(front), Some(find)) => Some(Front::start(front, find).await?),
        (Some(front), None) => {
            return Err(StartError::Configuration(format!(
                "--redis-front: the store {:?} is not initialised by this process; name its type \
                 with --store, and give its properties without a secret store",
                front.store
            )));
        }
    };
    Ok(Serving { components, front, _initialising: initialising })
}

impl Serving {
    /// Serves until `stop`, then drains.
    pub async fn run(self, stop: CancellationToken) {
        stop.cancelled().await;
        self.drain().await;
    }

    /// Drains every component, all at the same time.
    pub async fn drain(self) {
        if let Some(front) = self.front {
            front.drain().await;
        }
        join_all(self.components.into_iter().map(Component::drain)).await;
    }
}

/// Finds an instance.
fn find(instances: Arc<Instances>, name: String) -> FindStore {
    Arc::new(move || {
        let (instances, name) = (Arc::clone(&instances), name.clone());
        Box::pin(async move { instances.store(&name, Instant::now(), None).await })
    })
}

type Items = Vec<(String, String)>;

/// An instance that the process initialises without Init.
struct OwnInstance {
    name: String,
    items: Items,
    operation_timeout: Duration,
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

/// The instances to initialise without Init. An instance that needs a secret store or the
/// app's ID waits for daprd's Init, which has both.
async fn resolve(
    kind: Kind,
    manifests: &[&manifest::Component],
    around: &Environment,
) -> Result<Vec<OwnInstance>, StartError> {
    let mut resolved = Vec::new();
    for manifest in manifests {
        let name = manifest.name.clone();
        if manifest.waits_for_daprd(around) {
            info!(store = name, "waits for Init: its YAML needs daprd to resolve it");
            continue;
        }
        let items: Items = manifest.properties(around, &NoSecrets).await?.into_iter().collect();
        let wrong = |why: String| {
            let origin = &manifest.origin;
            StartError::Configuration(format!("{origin}, component {name:?}: {why}"))
        };
        let settings = kind.check(items.clone()).map_err(|error| match error {
            LockError::InvalidMetadata(violations) => {
                let problems: Vec<_> = violations.iter().map(ToString::to_string).collect();
                wrong(problems.join("; "))
            }
            other => wrong(other.to_string()),
        })?;
        let operation_timeout = settings.operation_timeout;
        resolved.push(OwnInstance { name, items, operation_timeout });
    }
    Ok(resolved)
}

/// Initialises one instance, trying until it succeeds: its backend may come up after this
/// process, and daprd does not repeat Init.
async fn initialise(instances: Arc<Instances>, own: OwnInstance) {
    let OwnInstance { name, items, operation_timeout } = own;
    let mut backoff = Backoff::new(RETRY_DELAY_MIN, RETRY_DELAY_MAX);
    loop {
        if instances.is_live(&name) {
            return;
        }
        match instances.init(&name, items.iter().cloned().collect()).await {
            Ok(()) => return,
            Err(error) => {
                warn!(store = name, %error, "not initialised yet; trying again");
                instances.opening(&name, operation_timeout, &error.to_string());
            }
        }
        backoff.pause().await;
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
