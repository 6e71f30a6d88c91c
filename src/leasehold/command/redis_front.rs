//! `leasehold redis-front`: from its command line to a front that serves.

use std::sync::Arc;

use leasehold_component::{DRAIN_MAX, Instances};
use leasehold_front::{Front, FrontArgs};
use leasehold_manifest::{Environment, Resources};
use leasehold_metrics::Role;
use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{StartError, instances, metrics::Observed};

/// A front that serves.
pub struct Serving {
    front: Front,
    instances: Arc<Instances>,
    observed: Observed,
    _initialising: Arc<AbortOnDropHandle<()>>,
}

/// Begins to serve a store, which may be reached later.
pub async fn start(args: &FrontArgs) -> Result<Serving, StartError> {
    let options = args.options().map_err(StartError::Configuration)?;
    let resources = Resources {
        folders: args.resources_path.clone(),
        environment: Environment::of_process(None),
    };
    let (kind, own) = instances::of_component(&resources, &args.store).await?;
    let observed = Observed::start(args.metrics.address(), Role::Stores).await?;
    let instances = instances::of_kind(kind, observed.observers(), str::to_owned);
    let initialising = Arc::new(instances::begin(&instances, own));
    let front =
        Front::start(options, instances::find(Arc::clone(&instances), args.store.clone()))
            .await?;
    let opening = Arc::clone(&initialising);
    observed.started(move || opening.is_finished());
    Ok(Serving { front, instances, observed, _initialising: initialising })
}

impl Serving {
    /// Serves until `stop`, then drains.
    pub async fn run(self, stop: CancellationToken) {
        stop.cancelled().await;
        self.observed.drain();
        let until = Instant::now() + DRAIN_MAX;
        self.instances.drain();
        self.front.drain().await;
        self.instances.retire_by(until).await;
    }
}
