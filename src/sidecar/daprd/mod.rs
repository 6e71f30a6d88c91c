//! The daprd that the sidecar is in front of: calls are passed on to it, and its command
//! line is taken.

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

/// The daprd that the sidecar is in front of, as far as it is configured.
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

    /// What is wrong if the daprd is this sidecar itself: it would pass a call on to itself
    /// until it has no file descriptor left.
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
