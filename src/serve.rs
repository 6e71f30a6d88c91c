//! `leasehold serve`: the component, from its options to the end of its drain.

use std::{collections::BTreeSet, env, sync::Arc, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures_util::future::join_all;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::{
    backend::Kind,
    cli::{ServeOptions, StoreOption},
    component::{Component, Instances, ServeError, Socket, SocketError, socket_folder},
    lock::{Clock, LockError},
    manifest::{Manifest, ManifestError, TEMPLATES, Value, env_allowed, read_folders},
};

/// How long to wait between tries to initialise an instance by ourselves.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

/// Why the component could not be served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The command line or the component YAML is wrong.
    #[error("{0}")]
    Configuration(String),
    /// A socket is not to be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Serving failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

impl From<ManifestError> for StartError {
    fn from(error: ManifestError) -> Self {
        Self::Configuration(error.to_string())
    }
}

/// Components that are being served, with the tasks that initialise instances
/// on their own.
#[derive(Debug)]
pub struct Serving {
    components: Vec<Component>,
    _initialising: Vec<AbortOnDropHandle<()>>,
}

/// Opens every socket and starts to serve.
pub async fn start(options: &ServeOptions) -> Result<Serving, StartError> {
    let stores = options.stores();
    must_differ(&stores)?;
    let manifests = read_folders(&options.resources_path)?;
    let folder = socket_folder(options.socket_folder.clone(), |name| env::var_os(name));
    let (mut components, mut initialising) = (Vec::new(), Vec::new());
    for StoreOption { kind, socket } in stores {
        let mine: Vec<_> =
            manifests.iter().filter(|m| m.kind == format!("lock.{socket}")).collect();
        let to_initialise = resolve(kind, &mine)?;
        let socket =
            Socket::open(&folder.join(format!("{socket}.sock")), options.socket_mode).await?;
        info!(store = kind.name, socket = %socket.path().display(), "listening");
        let instances = Arc::new(Instances::new(Arc::new(move |metadata| {
            Box::pin(kind.open(metadata, Clock::system()))
        })));
        for (name, items) in to_initialise {
            let task = initialise(Arc::clone(&instances), name, items);
            initialising.push(AbortOnDropHandle::new(tokio::spawn(task)));
        }
        components.push(Component::start(socket, instances).await?);
    }
    Ok(Serving { components, _initialising: initialising })
}

impl Serving {
    /// Drains every component, all at the same time.
    pub async fn drain(self) -> Result<(), ServeError> {
        join_all(self.components.into_iter().map(Component::drain)).await.into_iter().collect()
    }
}

type Items = Vec<(String, String)>;

/// The instances to initialise without Init. One that needs a secret store or
/// the app's ID waits for daprd's Init, which has both.
fn resolve(kind: Kind, manifests: &[&Manifest]) -> Result<Vec<(String, Items)>, StartError> {
    let mut resolved = Vec::new();
    for manifest in manifests {
        let Some(items) = manifest.items.iter().map(resolve_item).collect::<Option<Items>>()
        else {
            info!(
                instance = manifest.name,
                "waits for Init: its YAML needs daprd to resolve it"
            );
            continue;
        };
        if let Err(LockError::InvalidMetadata(violations)) = kind.check(items.clone()) {
            let problems: Vec<_> = violations.iter().map(ToString::to_string).collect();
            return Err(StartError::Configuration(format!(
                "{}, component {:?}: {}",
                manifest.file.display(),
                manifest.name,
                problems.join("; ")
            )));
        }
        resolved.push((manifest.name.clone(), items));
    }
    Ok(resolved)
}

fn resolve_item((name, value): &(String, Value)) -> Option<(String, String)> {
    let value = match value {
        Value::Plain(text) if TEMPLATES.iter().any(|template| text.contains(template)) => {
            return None;
        }
        Value::Plain(text) => text.clone(),
        Value::Env(variable) if env_allowed(variable) => env::var(variable).ok()?,
        Value::Env(_) | Value::Secret => return None,
    };
    Some((name.clone(), value))
}

/// Initialises one instance, for as long as it takes: its backend may come up
/// after this process, and daprd does not repeat Init.
async fn initialise(instances: Arc<Instances>, name: String, items: Items) {
    let mut delays = ExponentialBuilder::new()
        .with_min_delay(RETRY_DELAY_MIN)
        .with_max_delay(RETRY_DELAY_MAX)
        .without_max_times()
        .with_jitter()
        .build();
    loop {
        if instances.is_live(&name) {
            return;
        }
        match instances.init(&name, items.iter().cloned().collect()).await {
            Ok(()) => return,
            Err(error) => {
                warn!(instance = name, %error, "not initialised yet; trying again");
                instances.opening(&name, &error);
            }
        }
        sleep(delays.next().unwrap_or(RETRY_DELAY_MAX)).await;
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
