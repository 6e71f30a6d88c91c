//! The daprd behind the sidecar: passing calls on to it, and accepting its flags.

pub mod flags;
pub mod passthrough;
pub mod secrets;

use std::sync::Arc;

use leasehold_manifest::{NoSecrets, Secrets};
use tokio::sync::watch;

use self::{
    passthrough::{Endpoint, Passthrough},
    secrets::DaprdSecrets,
};
use super::{Hooks, Options, SidecarArgs, options::Listen, usage::UsageError};

/// The endpoints of the daprd behind the sidecar, as far as configured.
pub struct Daprd {
    grpc: Option<Endpoint>,
    http: Option<Endpoint>,
}

impl Daprd {
    /// Reads the endpoints of the command line.
    pub fn of(args: &SidecarArgs) -> Result<Self, UsageError> {
        let parse = |flag, endpoint: &Option<String>| {
            endpoint.as_deref().map(|text| Endpoint::parse(flag, text)).transpose()
        };
        Ok(Self {
            grpc: parse("--daprd-grpc-endpoint", &args.daprd_grpc_endpoint)?,
            http: parse("--daprd-http-endpoint", &args.daprd_http_endpoint)?,
        })
    }

    /// Refuses an endpoint that is this sidecar itself: a call would be passed on to itself
    /// until no file descriptor is left.
    pub fn check(&self, listen: &Listen) -> Result<(), UsageError> {
        let Listen::Ports { addresses, grpc, http } = listen else { return Ok(()) };
        for endpoint in self.grpc.iter().chain(&self.http) {
            for (flag, port) in [("--dapr-grpc-port", *grpc), ("--dapr-http-port", *http)] {
                if addresses.iter().any(|address| endpoint.is_at(*address, port)) {
                    return Err(UsageError(format!(
                        "daprd at {endpoint} is the sidecar itself; give {flag} another port \
                         than {port}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Resolves the secrets of component YAML.
    pub fn secrets(&self, options: &Options) -> Result<Arc<dyn Secrets>, UsageError> {
        Ok(match &self.http {
            Some(endpoint) => {
                Arc::new(DaprdSecrets::new(endpoint.clone(), options.token.secret())?)
            }
            None => Arc::new(NoSecrets),
        })
    }

    /// Passes on the calls that are not for locks.
    pub fn hooks(self, healthy: watch::Receiver<bool>) -> Result<Hooks, UsageError> {
        Ok(Hooks {
            grpc: self.grpc.map(Passthrough::grpc).transpose()?,
            http: self.http.map(Passthrough::http).transpose()?,
            healthy,
            failed_unlocks: None,
        })
    }
}
