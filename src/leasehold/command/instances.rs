//! Instances that a process initialises by itself, from component YAML.

use std::{sync::Arc, time::Duration};

use leasehold_component::{Instances, OpenInstance};
use leasehold_front::FindStore;
use leasehold_lock::{Clock, Kind, LockError, observe::Observers};
use leasehold_manifest::{self as manifest, Environment, NoSecrets, Resources};
use leasehold_util::retry::Backoff;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::StartError;
use crate::backend::KINDS;

/// How long to wait between attempts to initialise an instance.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

type Items = Vec<(String, String)>;

/// An instance that the process initialises without Init.
pub(super) struct OwnInstance {
    pub(super) name: String,
    pub(super) items: Items,
    operation_timeout: Duration,
}

/// The instances of a kind of backend, none of which is initialised yet. `label` makes the name of
/// an instance's store in metrics.
pub(super) fn of_kind(
    kind: Kind,
    observers: Observers,
    label: impl Fn(&str) -> String + Send + Sync + 'static,
) -> Arc<Instances> {
    let kind_name = format!("lock.{}", kind.name);
    let open: OpenInstance = Arc::new(move |name, metadata, before| {
        let observer = observers(&label(name), &kind_name);
        Box::pin(async move {
            kind.open_observed(metadata, Clock::system(), before.as_ref(), observer).await
        })
    });
    Arc::new(Instances::new(open, kind.features))
}

/// Finds a lock component by its name, and reads it.
pub(super) async fn of_component(
    resources: &Resources,
    name: &str,
) -> Result<(Kind, OwnInstance), StartError> {
    let loaded = resources.load_whole()?;
    let component = named(&loaded.components, name)?;
    let origin = &component.origin;
    if let Some(item) = component.waits_for_daprd(&resources.environment) {
        return Err(StartError::Configuration(format!(
            "{origin}, component {name:?}: the property {:?} cannot be resolved here: only daprd \
             has secret stores, and only a sidecar an app's ID; give it a value, or an envRef to a \
             variable that is set",
            item.name
        )));
    }
    let kind = component.lock_type().unwrap_or_default();
    let unknown = || format!("{origin}: {}", KINDS.unknown(&kind));
    let kind = KINDS.named(&kind).ok_or_else(|| StartError::Configuration(unknown()))?;
    Ok((kind, resolve(kind, component, &resources.environment).await?))
}

/// The lock component of this name.
fn named<'a>(
    components: &'a [manifest::Component],
    name: &str,
) -> Result<&'a manifest::Component, StartError> {
    let stores = || components.iter().filter(|component| component.lock_type().is_some());
    stores().find(|component| component.name == name).ok_or_else(|| {
        let names: Vec<_> = stores().map(|component| component.name.as_str()).collect();
        let there = if names.is_empty() {
            "has no lock store".to_owned()
        } else {
            format!("has the lock stores {}", names.join(", "))
        };
        StartError::Configuration(format!(
            "--store: there is no lock store {name:?}; --resources-path {there}"
        ))
    })
}

/// Reads the properties of an instance, and checks them.
pub(super) async fn resolve(
    kind: Kind,
    manifest: &manifest::Component,
    around: &Environment,
) -> Result<OwnInstance, StartError> {
    let name = manifest.name.clone();
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
    Ok(OwnInstance { name, items, operation_timeout: settings.operation_timeout })
}

/// Begins to initialise an instance. Calls wait for it from now on, so that none is refused as
/// not initialised.
pub(super) fn begin(instances: &Arc<Instances>, own: OwnInstance) -> AbortOnDropHandle<()> {
    instances.opening(&own.name, own.operation_timeout, "its backend is being connected");
    AbortOnDropHandle::new(tokio::spawn(initialise(Arc::clone(instances), own)))
}

/// Initialises one instance, and retries until it succeeds: its backend may start after
/// this process, and daprd does not repeat Init.
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
                instances.opening(&name, operation_timeout, &error.as_cause());
            }
        }
        backoff.pause().await;
    }
}

/// Finds the store of an instance.
pub(super) fn find(instances: Arc<Instances>, name: String) -> FindStore {
    Arc::new(move || {
        let (instances, name) = (Arc::clone(&instances), name.clone());
        Box::pin(async move { instances.store(&name, Instant::now(), None).await })
    })
}
