//! The sidecar's command line, with daprd's names.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, ValueEnum};

use super::{
    app_client::AppChannel,
    auth::Token,
    browsers::{Allowed, HostName, Origin},
    daprd_flags::DaprdFlags,
};

/// Speak the Dapr API to an app: lock calls are served here, every other call
/// is passed on to the daprd behind it, if there is one.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  leasehold sidecar --app-id orders --resources-path ./my-components
      the lock API for the app \"orders\", on ports 50001 (gRPC) and 3500 (HTTP)
  leasehold sidecar --app-id orders --resources-path ./my-components \\
      --dapr-grpc-port 50011 --dapr-http-port 3510 \\
      --daprd-grpc-endpoint 127.0.0.1:50001 --daprd-http-endpoint 127.0.0.1:3500
      in front of a daprd, which gets every other call
  leasehold sidecar --app-id orders --resources-path ./my-components \\
      --app-port 8080 --enable-app-health-check
      renew only while the app answers, and call it back when a lock is lost

Environment:
  DAPR_API_TOKEN   the token that callers must send as dapr-api-token
  APP_API_TOKEN    the token sent with calls to the app
  NAMESPACE, POD_NAME, and what envRef names   fill in component YAML
  DAPR_COMPONENTS_SOCKETS_FOLDER, DAPR_COMPONENT_SOCKETS_FOLDER,
  DAPR_COMPONENT_SOCKET_FOLDER   the folder of pluggable components' sockets

Exit status: 0 after a drained stop, 64 for a wrong command line or
configuration, 1 for anything else (a store that is not reached at the start,
or a port in use, for two).")]
pub struct SidecarArgs {
    /// The app's ID: prefixes its resources and is shown as the holder.
    #[arg(long, default_value = "")]
    pub app_id: String,
    /// The port that the app listens on, for callbacks and health checks.
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = port)]
    pub app_port: u16,
    /// What the app speaks there.
    #[arg(long, value_enum, default_value_t = AppProtocol::Http)]
    pub app_protocol: AppProtocol,
    /// The address that the app listens on.
    #[arg(long, default_value = "127.0.0.1")]
    pub app_channel_address: String,
    /// A folder of component YAML; may be repeated.
    #[arg(long, alias = "components-path", value_delimiter = ',')]
    pub resources_path: Vec<PathBuf>,
    /// The folder of pluggable components' sockets.
    #[arg(long)]
    pub socket_folder: Option<PathBuf>,
    /// The port of the HTTP API.
    #[arg(long, default_value_t = 3500, value_parser = port)]
    pub dapr_http_port: u16,
    /// The port of the gRPC API.
    #[arg(long, default_value_t = 50001, value_parser = port)]
    pub dapr_grpc_port: u16,
    /// The addresses to listen on, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1,::1")]
    pub dapr_listen_addresses: Vec<IpAddr>,
    /// A folder for Unix sockets to listen on instead of ports:
    /// dapr-APPID-grpc.socket and dapr-APPID-http.socket.
    #[arg(long)]
    pub unix_domain_socket: Option<PathBuf>,
    /// The gRPC API of the daprd behind, as a URL or host:port.
    #[arg(long)]
    pub daprd_grpc_endpoint: Option<String>,
    /// The HTTP API of the daprd behind, as a URL or host:port.
    #[arg(long)]
    pub daprd_http_endpoint: Option<String>,
    /// Renew only while the app is healthy.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true")]
    pub enable_app_health_check: bool,
    /// The path of the app's health, for HTTP.
    #[arg(long, default_value = "/healthz")]
    pub app_health_check_path: String,
    /// Seconds between probes of the app's health.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub app_health_probe_interval: u32,
    /// Milliseconds that a probe may take.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub app_health_probe_timeout: u32,
    /// How many probes must fail in a row for the app to be unhealthy.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub app_health_threshold: u32,
    /// Seconds that the drain may take.
    #[arg(long, default_value_t = 10)]
    pub dapr_graceful_shutdown_seconds: u32,
    /// Origins whose pages may make lock calls from a browser, such as
    /// http://localhost:8080; none by default.
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',')]
    pub lock_allowed_origins: Vec<Origin>,
    /// Names by which a sidecar on loopback may be called besides localhost and
    /// loopback addresses.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub allowed_hosts: Vec<HostName>,
    /// How many locks may be held through this sidecar.
    #[arg(long, default_value_t = 200_000)]
    pub max_held_locks: u32,
    /// The flags of daprd that mean nothing here.
    #[command(flatten)]
    pub daprd_flags: DaprdFlags,
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "it is no port; use a number from 0 to 65535".to_owned())
}

/// What the app speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AppProtocol {
    /// HTTP/1.
    Http,
    /// HTTP/2 without TLS.
    H2c,
    /// HTTP/1 over TLS; the app's certificate is not checked.
    Https,
    /// gRPC.
    Grpc,
    /// gRPC over TLS; the app's certificate is not checked.
    Grpcs,
}

impl AppProtocol {
    /// Whether the app is called by gRPC, or else by HTTP.
    pub(super) fn is_grpc(self) -> bool {
        matches!(self, Self::Grpc | Self::Grpcs)
    }

    /// Whether the connection is encrypted.
    pub(super) fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Grpcs)
    }

    /// Whether it is HTTP/2 from the first byte.
    pub(super) fn is_http2(self) -> bool {
        !matches!(self, Self::Http | Self::Https)
    }
}

/// The sidecar's own settings, checked.
#[derive(Clone, Debug)]
pub struct Options {
    /// The app's ID, empty where none was given.
    pub app_id: String,
    /// Where the app is called; `None` without a port.
    pub app: Option<AppChannel>,
    /// Where to listen.
    pub listen: Listen,
    /// The token that callers must send (`DAPR_API_TOKEN`).
    pub token: Token,
    /// Which browsers may make lock calls, and by which names.
    pub allowed: Allowed,
    /// How long the drain may take.
    pub drain_max: Duration,
    /// How many locks may be held.
    pub held_max: usize,
}

/// Where the sidecar listens.
#[derive(Clone, Debug)]
pub enum Listen {
    /// On ports of these addresses.
    Ports {
        /// The addresses.
        addresses: Vec<IpAddr>,
        /// The port of the gRPC API; 0 lets the system choose.
        grpc: u16,
        /// The port of the HTTP API; 0 lets the system choose.
        http: u16,
    },
    /// On Unix sockets in this folder.
    Sockets(PathBuf),
}

impl SidecarArgs {
    /// What of it cannot be; names the flags and the fix.
    pub(super) fn problem(&self) -> Option<String> {
        if let Some(folder) = &self.unix_domain_socket {
            if self.app_id.is_empty() {
                return Some(
                    "--unix-domain-socket needs --app-id, which names the sockets".to_owned(),
                );
            }
            if !folder.is_dir() {
                return Some(format!(
                    "--unix-domain-socket {} is no folder; make it, or give one that is there",
                    folder.display()
                ));
            }
        } else if self.dapr_http_port == self.dapr_grpc_port && self.dapr_http_port != 0 {
            return Some(format!(
                "--dapr-http-port and --dapr-grpc-port are both {}; give each a port of its own",
                self.dapr_http_port
            ));
        }
        None
    }

    /// The sidecar's own settings. `env` looks up an environment variable.
    #[must_use]
    pub fn options(&self, env: impl Fn(&str) -> Option<String>) -> Options {
        let token = |name| Token::new(env(name).as_deref());
        let app = (self.app_port != 0).then(|| {
            let token = token("APP_API_TOKEN");
            AppChannel::new(&self.app_channel_address, self.app_port, self.app_protocol, token)
        });
        Options {
            app_id: self.app_id.clone(),
            app,
            listen: match &self.unix_domain_socket {
                Some(folder) => Listen::Sockets(folder.clone()),
                None => Listen::Ports {
                    addresses: self.dapr_listen_addresses.clone(),
                    grpc: self.dapr_grpc_port,
                    http: self.dapr_http_port,
                },
            },
            token: token("DAPR_API_TOKEN"),
            allowed: Allowed {
                origins: self.lock_allowed_origins.clone(),
                hosts: self.allowed_hosts.clone(),
            },
            drain_max: Duration::from_secs(self.dapr_graceful_shutdown_seconds.into()),
            held_max: self.max_held_locks as usize,
        }
    }
}
