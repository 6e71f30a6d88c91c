//! `leasehold redis-front`: from its command line to a front that serves.

use std::sync::Arc;

use leasehold_component::{DRAIN_MAX, Instances};
use leasehold_front::{Front, FrontArgs};
use leasehold_manifest::{Component, Environment, Resources};
use tokio::time::{Instant, timeout_at};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::warn;

use super::{StartError, instances};
use crate::backend::KINDS;

/// A front that serves.
pub struct Serving {
    front: Front,
    instances: Arc<Instances>,
    _initialising: AbortOnDropHandle<()>,
}

/// Begins to serve a store, which may be reached later.
pub async fn start(args: &FrontArgs) -> Result<Serving, StartError> {
    let options = args.options().map_err(StartError::Configuration)?;
    let resources = Resources {
        folders: args.resources_path.clone(),
        environment: Environment::of_process(None),
    };
    let loaded = resources.load_whole()?;
    let component = named(&loaded.components, &args.store)?;
    let origin = &component.origin;
    if component.waits_for_daprd(&resources.environment) {
        return Err(StartError::Configuration(format!(
            "{origin}: redis-front has neither secret stores nor an app's ID; give each property \
             a value, or an envRef to a variable that is set"
        )));
    }
    let kind = component.lock_type().unwrap_or_default();
    let unknown = || format!("{origin}: {}", KINDS.unknown(&kind));
    let kind = KINDS.named(&kind).ok_or_else(|| StartError::Configuration(unknown()))?;
    let own = instances::resolve(kind, component, &resources.environment).await?;
    let instances = instances::of_kind(kind);
    let initialising = instances::begin(&instances, own);
    let front =
        Front::start(options, instances::find(Arc::clone(&instances), args.store.clone()))
            .await?;
    Ok(Serving { front, instances, _initialising: initialising })
}

impl Serving {
    /// Serves until `stop`, then drains.
    pub async fn run(self, stop: CancellationToken) {
        stop.cancelled().await;
        let until = Instant::now() + DRAIN_MAX;
        self.instances.drain();
        self.front.drain().await;
        if timeout_at(until, self.instances.retire()).await.is_err() {
            warn!("some operations are still unsettled; what they left ends with its TTL");
        }
    }
}

/// The lock component of this name.
fn named<'a>(components: &'a [Component], name: &str) -> Result<&'a Component, StartError> {
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
