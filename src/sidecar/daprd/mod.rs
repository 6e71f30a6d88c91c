//! The daprd behind the sidecar: passing calls on to it, and accepting its flags.

pub mod flags;
pub mod passthrough;
pub mod secrets;

use std::sync::Arc;

use leasehold_manifest::{NoSecrets, Secrets};
use tokio::sync::watch;
use tower::util::BoxCloneSyncService;

use self::{
    passthrough::{Endpoint, EndpointError, Passthrough},
    secrets::DaprdSecrets,
};
use super::{Hooks, Options, SidecarArgs, options::Listen};

/// The endpoints of the daprd behind the sidecar, as far as configured.
pub struct Daprd {
    grpc: Option<Endpoint>,
    http: Option<Endpoint>,
}

impl Daprd {
    /// Reads the endpoints of the command line.
    pub fn of(args: &SidecarArgs) -> Result<Self, EndpointError> {
        let parse = |flag, endpoint: &Option<String>| {
            endpoint.as_deref().map(|text| Endpoint::parse(flag, text)).transpose()
        };
        Ok(Self {
            grpc: parse("--daprd-grpc-endpoint", &args.daprd_grpc_endpoint)?,
            http: parse("--daprd-http-endpoint", &args.daprd_http_endpoint)?,
        })
    }

    /// The problem if the endpoint is this sidecar itself: a call would be passed on to
    /// itself until no file descriptor is left.
    pub fn problem(&self, listen: &Listen) -> Option<String> {
        let Listen::Ports { addresses, grpc, http } = listen else { return None };
        let own = [("--dapr-grpc-port", *grpc), ("--dapr-http-port", *http)];
        self.grpc.iter().chain(&self.http).find_map(|endpoint| {
            let (flag, port) = own.into_iter().find(|(_, port)| {
                addresses.iter().any(|address| endpoint.is_at(*address, *port))
            })?;
            Some(format!(
                "daprd at {endpoint} is the sidecar itself; give {flag} another port than {port}"
            ))
        })
    }

    /// Resolves the secrets of component YAML.
    pub fn secrets(&self, options: &Options) -> Result<Arc<dyn Secrets>, EndpointError> {
        Ok(match &self.http {
            Some(endpoint) => {
                Arc::new(DaprdSecrets::new(endpoint.clone(), options.token.secret())?)
            }
            None => Arc::new(NoSecrets),
        })
    }

    /// Passes on the calls that are not for locks.
    pub fn hooks(self, healthy: watch::Receiver<bool>) -> Result<Hooks, EndpointError> {
        let grpc = self.grpc.map(Passthrough::grpc).transpose()?;
        let http = self.http.map(Passthrough::http).transpose()?;
        Ok(Hooks {
            grpc: grpc.map(BoxCloneSyncService::new),
            http: http.map(BoxCloneSyncService::new),
            healthy,
            failed_unlocks: None,
        })
    }
}
