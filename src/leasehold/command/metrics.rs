//! The metrics and probes of a command.

use std::net::SocketAddr;

use leasehold_lock::observe::{Observers, Unobserved};
use leasehold_manifest::Reloads;
use leasehold_metrics::{Endpoint, Metrics, Role};

use super::StartError;
use crate::telemetry;

/// The metrics and probes of a command, if they are wanted.
pub(super) struct Observed(Option<(Metrics, Endpoint)>);

impl Observed {
    /// Begins to serve metrics and probes at this address. The process is not ready yet.
    pub(super) async fn start(
        address: Option<SocketAddr>,
        role: Role,
    ) -> Result<Self, StartError> {
        let Some(address) = address else { return Ok(Self(None)) };
        let metrics = Metrics::new(role, telemetry::lines_dropped)
            .map_err(|error| StartError::Unavailable(format!("metrics: {error}")))?;
        let endpoint = Endpoint::listen(address, metrics.clone()).await?;
        Ok(Self(Some((metrics, endpoint))))
    }

    /// Observe the stores.
    pub(super) fn observers(&self) -> Observers {
        self.0.as_ref().map_or_else(Unobserved::stores, |(metrics, _)| metrics.observers())
    }

    /// Shows whether component YAML could be read and is applied.
    pub(super) fn reloads(&self) -> Reloads {
        match &self.0 {
            Some((metrics, _)) => Reloads::new(metrics.on_reload()),
            None => Reloads::new(|_| ()),
        }
    }

    /// The process serves from now on. It is ready once `is_ready` returns true.
    pub(super) fn started(&self, is_ready: impl Fn() -> bool + Send + Sync + 'static) {
        if let Some((_, endpoint)) = &self.0 {
            endpoint.started(is_ready);
        }
    }

    /// The process drains from now on, and is no longer ready.
    pub(super) fn drain(&self) {
        if let Some((_, endpoint)) = &self.0 {
            endpoint.drain();
        }
    }
}
