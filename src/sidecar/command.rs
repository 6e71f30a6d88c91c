//! `leasehold sidecar`: from its command line to a sidecar that serves.

use std::{convert::Infallible, env};

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Hooks, ListenError, Sidecar, SidecarArgs,
    prefix::KeyPrefix,
    stores::{NamedStore, Stores},
};
use crate::{
    backend::Kind,
    lock::{Clock, LockError},
    manifest::{Manifest, ManifestError, Value, read_folders},
};

/// Why the sidecar could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The command line or the component YAML is wrong.
    #[error("{0}")]
    Configuration(String),
    /// The backend of a store was not reached.
    #[error("{0}")]
    Unavailable(String),
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

impl From<ManifestError> for StartError {
    fn from(error: ManifestError) -> Self {
        Self::Configuration(error.to_string())
    }
}

/// A sidecar that serves.
#[derive(Debug)]
pub struct Serving(Sidecar);

impl Serving {
    /// Serves until `stop`, then drains.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        self.0.run(stop).await;
        Ok(())
    }
}

/// Opens the stores that the component YAML names, and begins to serve them.
pub async fn start(args: &SidecarArgs) -> Result<Serving, StartError> {
    let stores = Stores::default();
    for manifest in read_folders(&args.resources_path)? {
        if let Some(name) = manifest.kind.strip_prefix("lock.") {
            stores.insert(open(&manifest, name).await?);
            info!(store = manifest.name, kind = manifest.kind, "lock store loaded");
        }
    }
    if stores.is_empty() {
        warn!(
            "no lock store is configured; give --resources-path a folder with component YAML"
        );
    }
    let options = args.options(|name| env::var(name).ok());
    Ok(Serving(Sidecar::start(options, stores, Hooks::default()).await?))
}

async fn open(manifest: &Manifest, backend: &str) -> Result<NamedStore, StartError> {
    let wrong = |problem: String| {
        StartError::Configuration(format!(
            "{}, component {:?}: {problem}",
            manifest.file.display(),
            manifest.name
        ))
    };
    let kind = Kind::named(backend)
        .ok_or_else(|| wrong(format!("couldn't find lock store {}/v1", manifest.kind)))?;
    let mut items = Vec::new();
    for (name, value) in &manifest.items {
        let value = match value {
            Value::Plain(text) => text.clone(),
            Value::Env(variable) => env::var(variable).unwrap_or_default(),
            Value::Secret => return Err(wrong(format!("{name} needs a secret store"))),
        };
        items.push((name.clone(), value));
    }
    let prefix = KeyPrefix::of(items.iter().map(|(key, value)| (&**key, &**value)))
        .map_err(|violation| wrong(violation.to_string()))?;
    items.retain(|(key, _)| !key.eq_ignore_ascii_case(super::prefix::PROPERTY));
    let store = kind.open(items, Clock::system()).await.map_err(|error| match error {
        error @ LockError::InvalidMetadata(_) => wrong(error.to_string()),
        error => StartError::Unavailable(format!(
            "component {:?} is not initialised: {error}",
            manifest.name
        )),
    })?;
    Ok(NamedStore::new(&*manifest.name, manifest.kind.clone(), "v1", prefix, store))
}
