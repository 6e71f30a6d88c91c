//! `leasehold redis-front`: from its command line to a front that serves.

use std::sync::Arc;

use leasehold_component::{DRAIN_MAX, Instances};
use leasehold_front::{Front, FrontArgs};
use leasehold_manifest::{Environment, Resources};
use tokio::time::{Instant, timeout_at};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::warn;

use super::{StartError, instances};

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
    let (kind, own) = instances::of_component(&resources, &args.store).await?;
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
