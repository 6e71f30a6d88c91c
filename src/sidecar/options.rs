//! The sidecar's command line, with daprd's names.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::{ArgAction, Args, builder::BoolishValueParser};
use leasehold_metrics::MetricsArgs;
use leasehold_net::flags::{address, port};
use leasehold_util::duration::parse_go_duration;

use super::{
    api::auth::Token,
    app::{client::AppChannel, protocol::AppProtocol},
    daprd::flags::DaprdFlags,
    identity::Instance,
    usage::UsageError,
};

/// Where a daprd serves its own metrics by default.
const DAPRD_METRICS_PORT: u16 = 9090;

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
  POD_NAME         the instance, unless --instance names it
  NAMESPACE, POD_NAME, and what envRef names   fill in component YAML
  DAPR_COMPONENTS_SOCKETS_FOLDER, DAPR_COMPONENT_SOCKETS_FOLDER,
  DAPR_COMPONENT_SOCKET_FOLDER   the folder of pluggable components' sockets

Exit status: 0 after a drained stop, 64 for a wrong command line or
configuration, 1 for any other failure, such as a store that cannot be reached
at the start or a port in use.")]
pub struct SidecarArgs {
    /// The app's ID: prefixes its resources and begins the holder, APP/INSTANCE.
    #[arg(long, default_value = "")]
    pub app_id: String,
    /// Identifies this process of the app in the holder; the default is
    /// POD_NAME, else the host's name.
    #[arg(long, value_name = "NAME")]
    pub instance: Option<Instance>,
    /// The port that the app listens on, for callbacks and health checks.
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = port)]
    pub app_port: u16,
    /// The protocol of the app on its port.
    #[arg(long, value_enum, ignore_case = true, default_value_t = AppProtocol::Http)]
    pub app_protocol: AppProtocol,
    /// The app speaks TLS; use --app-protocol https or grpcs instead.
    #[arg(long, hide = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub app_ssl: bool,
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
    /// The addresses to listen on, separated by commas; localhost is 127.0.0.1 and ::1.
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1,::1",
          value_parser = ListenAddress::parse)]
    pub dapr_listen_addresses: Vec<ListenAddress>,
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
          default_value = "false", default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub enable_app_health_check: bool,
    /// The path of the app's health check, for HTTP.
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
    /// How many locks may be held through this sidecar.
    #[arg(long, default_value_t = 200_000)]
    pub max_held_locks: u32,
    /// For how long a lock without a max_hold is renewed whose call has no stream, or one
    /// over HTTP/1, while the app has no health checks (for example 1h or 90m); 0 is no limit.
    #[arg(long, default_value = "1h", value_parser = duration)]
    pub max_hold_default: Duration,
    /// Metrics and probes.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// daprd's flags that have no effect here.
    #[command(flatten)]
    pub daprd_flags: DaprdFlags,
}

/// One entry of `--dapr-listen-addresses`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress(Vec<IpAddr>);

impl ListenAddress {
    /// Reads an IP address, or `localhost`, which is that of either version.
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("localhost") {
            return Ok(Self(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]));
        }
        Ok(Self(vec![address(text)?]))
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    parse_go_duration(text)
        .ok_or_else(|| "it is not a duration; use for example 1h, 90m or 30s, or 0".to_owned())
}

/// The sidecar's own settings, checked.
#[derive(Clone, Debug)]
pub struct Options {
    /// The app's ID, empty where none was given.
    pub app_id: String,
    /// The name of this process among those of the app.
    pub instance: Instance,
    /// Where the app is called; `None` without a port.
    pub app: Option<AppChannel>,
    /// Where to listen.
    pub listen: Listen,
    /// The token that callers must send (`DAPR_API_TOKEN`).
    pub token: Token,
    /// How long the drain may take.
    pub drain_max: Duration,
    /// How many locks may be held.
    pub held_max: usize,
    /// For how long a lock without a stream and without a `max_hold` is renewed
    /// at most; `None` means without limit.
    pub max_hold_default: Option<Duration>,
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
    /// Refuses invalid combinations of flags.
    pub fn check(&self) -> Result<(), UsageError> {
        let (timeout, interval) =
            (self.app_health_probe_timeout, self.app_health_probe_interval);
        let problem = match &self.unix_domain_socket {
            _ if self.enable_app_health_check && self.app_port == 0 => {
                "--enable-app-health-check needs the app's port; give --app-port".to_owned()
            }
            _ if self.enable_app_health_check
                && u64::from(timeout) > u64::from(interval) * 1000 =>
            {
                format!(
                    "--app-health-probe-timeout ({timeout}ms) must not be greater than \
                 --app-health-probe-interval ({interval}s)"
                )
            }
            Some(_) if self.app_id.is_empty() => {
                "--unix-domain-socket needs --app-id, which names the sockets".to_owned()
            }
            Some(_) if self.app_id.contains('/') => format!(
                "--app-id {:?} cannot be part of a socket's name; leave out the '/', or \
                 --unix-domain-socket",
                self.app_id
            ),
            Some(folder) if !folder.is_dir() => format!(
                "--unix-domain-socket {} is no folder; make it, or give one that is there",
                folder.display()
            ),
            None if self.dapr_http_port == self.dapr_grpc_port && self.dapr_http_port != 0 => {
                format!(
                    "--dapr-http-port and --dapr-grpc-port are both {}; give each a port of its \
                     own",
                    self.dapr_http_port
                )
            }
            _ => return Ok(()),
        };
        Err(UsageError(problem))
    }

    /// Where metrics and probes are served, if they are. Injectors always pass daprd's own
    /// default, so that port is none.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        let address = self.metrics.address().filter(|_| self.daprd_flags.allows_metrics());
        address.filter(|address| address.port() != DAPRD_METRICS_PORT)
    }

    /// A line if the given port has no effect.
    #[must_use]
    pub fn metrics_warning(&self) -> Option<String> {
        let is_daprds = self.metrics.metrics_port == Some(DAPRD_METRICS_PORT);
        (is_daprds && self.daprd_flags.allows_metrics()).then(|| {
            format!(
                "--metrics-port {DAPRD_METRICS_PORT} has no effect here: it is daprd's default; \
                 choose another port for the sidecar's metrics and probes"
            )
        })
    }

    /// Each address once, in the order given.
    fn listen_addresses(&self) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        for address in self.dapr_listen_addresses.iter().flat_map(|entry| &entry.0) {
            if !addresses.contains(address) {
                addresses.push(*address);
            }
        }
        addresses
    }

    /// The sidecar's own settings. `env` looks up an environment variable.
    #[must_use]
    pub fn options(&self, env: impl Fn(&str) -> Option<String>) -> Options {
        let token = |name| Token::new(env(name).as_deref());
        let app = (self.app_port != 0).then(|| {
            let token = token("APP_API_TOKEN");
            let protocol = match self.app_ssl {
                true => self.app_protocol.with_tls(),
                false => self.app_protocol,
            };
            AppChannel::new(&self.app_channel_address, self.app_port, protocol, token)
        });
        Options {
            app_id: self.app_id.clone(),
            instance: Instance::or_of_machine(
                self.instance.clone(),
                env("POD_NAME").as_deref(),
            ),
            app,
            listen: match &self.unix_domain_socket {
                Some(folder) => Listen::Sockets(folder.clone()),
                None => Listen::Ports {
                    addresses: self.listen_addresses(),
                    grpc: self.dapr_grpc_port,
                    http: self.dapr_http_port,
                },
            },
            token: token("DAPR_API_TOKEN"),
            drain_max: Duration::from_secs(self.dapr_graceful_shutdown_seconds.into()),
            held_max: self.max_held_locks as usize,
            // Health checks notice an app that is gone.
            max_hold_default: (!self.enable_app_health_check
                && !self.max_hold_default.is_zero())
            .then_some(self.max_hold_default),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        sidecar: SidecarArgs,
    }

    fn options(arguments: &[&str]) -> Options {
        let arguments = std::iter::once("sidecar").chain(arguments.iter().copied());
        CommandLine::try_parse_from(arguments).unwrap().sidecar.options(|_| None)
    }

    fn addresses(text: &str) -> Vec<IpAddr> {
        match options(&["--dapr-listen-addresses", text]).listen {
            Listen::Ports { addresses, .. } => addresses,
            Listen::Sockets(folder) => panic!("{folder:?}"),
        }
    }

    #[test]
    fn listen_addresses_are_taken_as_daprd_takes_them() {
        let (v4, v6) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST));
        assert_eq!(addresses("[::1],127.0.0.1"), [v6, v4]);
        assert_eq!(addresses("::1"), [v6]);
        assert_eq!(addresses("localhost"), [v4, v6]);
        assert_eq!(addresses("127.0.0.1, localhost"), [v4, v6]);
    }

    /// The sockets were once created in a subfolder, where no SDK looks for them.
    #[test]
    fn an_app_id_with_a_slash_names_no_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().to_str().unwrap();
        let arguments = ["sidecar", "--app-id", "a/b", "--unix-domain-socket", folder];
        let parsed = CommandLine::try_parse_from(arguments).unwrap().sidecar;
        assert!(parsed.check().unwrap_err().to_string().contains("--app-id"));
    }

    #[test]
    fn the_instance_is_that_of_the_command_line_or_the_pod() {
        assert_eq!(options(&["--instance", "i-1"]).instance.to_string(), "i-1");
        let parsed = CommandLine::try_parse_from(["sidecar"]).unwrap().sidecar;
        let of_pod = parsed.options(|name| (name == "POD_NAME").then(|| "pod-1".to_owned()));
        assert_eq!(of_pod.instance.to_string(), "pod-1");
        for wrong in ["", "a/b", "a\nb"] {
            let line = ["sidecar", "--instance", wrong];
            assert!(CommandLine::try_parse_from(line).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_app_s_protocol_is_taken_in_any_case() {
        let app = options(&["--app-port", "1", "--app-protocol", "GRPC"]).app.unwrap();
        assert_eq!(app.protocol, AppProtocol::Grpc);
    }

    #[test]
    fn app_ssl_is_the_app_s_protocol_over_tls() {
        for (protocol, over_tls) in [
            ("http", AppProtocol::Https),
            ("grpc", AppProtocol::Grpcs),
            ("h2c", AppProtocol::H2c),
        ] {
            let arguments = ["--app-port", "1", "--app-protocol", protocol, "--app-ssl"];
            assert_eq!(options(&arguments).app.unwrap().protocol, over_tls);
        }
    }

    #[test]
    fn health_checks_that_cannot_work_are_refused_by_their_flag() {
        let check = |more: &[&str]| {
            let line = ["sidecar", "--enable-app-health-check"].into_iter();
            CommandLine::try_parse_from(line.chain(more.iter().copied()))
                .unwrap()
                .sidecar
                .check()
        };
        assert_eq!(check(&["--app-port=1", "--app-health-probe-timeout=5000"]), Ok(()));
        let slow = ["--app-port=1", "--app-health-probe-timeout=5001"];
        for (bad, flag) in [(&slow[..], "-probe-timeout"), (&[], "--app-port")] {
            assert!(check(bad).unwrap_err().to_string().contains(flag), "{bad:?}");
        }
        let unused = ["sidecar", "--app-health-probe-timeout=5001"];
        assert_eq!(CommandLine::try_parse_from(unused).unwrap().sidecar.check(), Ok(()));
        let never = ["sidecar", "--app-health-threshold=0"];
        assert!(CommandLine::try_parse_from(never).is_err());
    }

    fn max_hold_default(arguments: &[&str]) -> Option<Duration> {
        options(arguments).max_hold_default
    }

    #[test]
    fn a_lock_that_nothing_else_ends_is_renewed_for_an_hour_by_default() {
        assert_eq!(max_hold_default(&[]), Some(Duration::from_secs(3600)));
        let given = max_hold_default(&["--max-hold-default", "1m30s"]);
        assert_eq!(given, Some(Duration::from_secs(90)));
    }

    #[test]
    fn health_checks_or_zero_lift_the_limit() {
        assert_eq!(max_hold_default(&["--max-hold-default=0"]), None);
        let checks = ["--app-port=1", "--enable-app-health-check"];
        assert_eq!(max_hold_default(&checks), None);
    }

    #[test]
    fn a_limit_that_is_no_duration_is_refused() {
        for wrong in ["", "soon", "-1s", "10"] {
            let line = ["sidecar".to_owned(), format!("--max-hold-default={wrong}")];
            assert!(CommandLine::try_parse_from(line).is_err(), "{wrong:?}");
        }
    }
}
