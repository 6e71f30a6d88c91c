//! `leasehold sidecar`: from its command line to a sidecar that serves.

use std::{env, time::Duration};

use futures_util::future::join_all;
use leasehold_component::socket_folder;
use leasehold_manifest::{self as manifest, Environment, Loaded, Resources};
use leasehold_metrics::Role;
use leasehold_sidecar::{
    Hooks, Options, Sidecar, SidecarArgs,
    app::{
        health::AppHealthChecks,
        probe::{GrpcProbe, HttpProbe},
    },
    daprd::Daprd,
    failed_unlocks::{self, Reports},
    loader::Loader,
    stores::Stores,
};
use tokio::sync::{mpsc, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{info, warn};

use super::{StartError, metrics::Observed};
use crate::backend::KINDS;

/// A sidecar that serves.
pub struct Serving {
    sidecar: Sidecar,
    observed: Observed,
    following: AbortOnDropHandle<()>,
}

impl Serving {
    /// Serves until `stop`, then drains.
    pub async fn run(self, stop: CancellationToken) {
        let Self { sidecar, observed, following } = self;
        let draining = async {
            stop.cancelled().await;
            // A store that opened from now on would not be drained.
            following.abort();
            observed.drain();
        };
        tokio::join!(sidecar.run(stop.clone()), draining);
    }
}

/// Opens the stores that the component YAML names, and begins to serve them.
pub async fn start(args: &SidecarArgs) -> Result<Serving, StartError> {
    for warning in args.daprd_flags.warnings().chain(args.metrics_warning()) {
        warn!("{warning}");
    }
    let options = args.options(|name| env::var(name).ok());
    if let Some(app) = &options.app {
        app.check()?;
    }
    if options.app_id.is_empty() {
        warn!(
            "no --app-id: resources have no app in their prefix, components with scopes are \
             skipped, and the holder is shown without an app"
        );
    }
    args.check()?;
    let daprd = Daprd::of(args)?;
    daprd.check(&options.listen)?;
    let role = Role::Sidecar { held_max: options.held_max };
    let observed = Observed::start(args.metrics_address(), role).await?;
    let (healthy, failed_unlocks) = app_health(args, &options)?;
    let environment = Environment::of_process(Some(&args.app_id));
    let resources =
        Resources { folders: args.resources_path.clone(), environment: environment.clone() };
    let loaded = resources.load_whole()?;
    let (stores, reloads) = (Stores::default(), observed.reloads());
    let loader = Loader {
        kinds: KINDS,
        stores: stores.clone(),
        environment,
        secrets: daprd.secrets(&options)?,
        sockets: socket_folder(args.socket_folder.clone(), |name| env::var_os(name)),
        observers: observed.observers(),
        reloads: reloads.clone(),
    };
    let opening = loaded.components.iter().map(|component| loader.begin(component));
    let opened = join_all(opening).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    let late = opened.into_iter().flatten().cloned().collect();
    if stores.is_empty() {
        warn_of_no_store(args, &loaded);
    } else {
        for reason in skipped(&loaded) {
            info!("skipped, {reason}");
        }
    }
    let changes = manifest::watch(resources, &loaded, reloads)?;
    let following =
        AbortOnDropHandle::new(tokio::spawn(loader.follow(changes, loaded.components, late)));
    let hooks = Hooks { failed_unlocks, ..daprd.hooks(healthy)? };
    let sidecar = Sidecar::start(options, stores, hooks).await?;
    // Its stores are open, but for those whose failure is to be ignored.
    observed.started(|| true);
    Ok(Serving { sidecar, observed, following })
}

/// Logs why there is no store: the components that were found, and why none of them is a
/// lock store.
fn warn_of_no_store(args: &SidecarArgs, loaded: &Loaded) {
    if args.resources_path.is_empty() {
        warn!(
            "no lock store is configured; give --resources-path a folder with component YAML"
        );
        return;
    }
    let reasons = skipped(loaded);
    if reasons.is_empty() {
        warn!(
            "no lock store is configured: --resources-path has no component that could be \
             used (*.yaml or *.yml, apiVersion dapr.io/v1alpha1, kind Component)"
        );
    }
    for reason in reasons {
        warn!("no lock store is configured: skipped, {reason}");
    }
}

/// The components that are no lock stores of this app, and why.
fn skipped(loaded: &Loaded) -> Vec<String> {
    let others = loaded.components.iter().filter(|component| component.lock_type().is_none());
    let others = others
        .map(|component| format!("{component} ({}) is of no type lock.NAME", component.origin));
    loaded.skipped.iter().cloned().chain(others).collect()
}

type AppHealth = (watch::Receiver<bool>, Option<mpsc::Receiver<Reports>>);

/// The app's health and its reports of failed unlocks; always healthy unless health checks
/// are on.
fn app_health(args: &SidecarArgs, options: &Options) -> Result<AppHealth, StartError> {
    let Some(app) = options.app.as_ref().filter(|_| args.enable_app_health_check) else {
        return Ok((Hooks::default().healthy, None));
    };
    let checks = AppHealthChecks {
        interval: Duration::from_secs(args.app_health_probe_interval.into()),
        timeout: Duration::from_millis(args.app_health_probe_timeout.into()),
        threshold: args.app_health_threshold,
    };
    let (report, reports) = mpsc::channel(failed_unlocks::REPORTS_WAITING_MAX);
    let healthy = if app.protocol.is_grpc() {
        checks.start(GrpcProbe::new(app)?)
    } else {
        let probe = HttpProbe::new(app, &args.app_health_check_path)?;
        checks.start(probe.reporting_to(report))
    };
    Ok((healthy, Some(reports)))
}
