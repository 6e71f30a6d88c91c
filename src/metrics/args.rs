//! The flags of metrics and probes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Args;
use leasehold_net::flags::{address, port};

/// Where metrics and probes are served.
#[derive(Args, Clone, Debug)]
pub struct MetricsArgs {
    /// The port of /metrics, /livez and /readyz; without it there is none
    #[arg(long, value_name = "PORT", value_parser = port, overrides_with = "metrics_port")]
    pub metrics_port: Option<u16>,
    /// The address of --metrics-port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = address,
          overrides_with = "metrics_listen_address")]
    pub metrics_listen_address: IpAddr,
}

impl Default for MetricsArgs {
    fn default() -> Self {
        Self { metrics_port: None, metrics_listen_address: Ipv4Addr::LOCALHOST.into() }
    }
}

impl MetricsArgs {
    /// Where to listen, if a port was given.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.metrics_port.map(|port| SocketAddr::new(self.metrics_listen_address, port))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        metrics: MetricsArgs,
    }

    fn address(arguments: &[&str]) -> Option<String> {
        let line = ["program"].iter().chain(arguments);
        let address = Cli::try_parse_from(line).unwrap().metrics.address();
        address.map(|address| address.to_string())
    }

    #[test]
    fn nothing_listens_without_a_port() {
        assert_eq!(address(&[]), None);
        assert_eq!(address(&["--metrics-listen-address", "0.0.0.0"]), None);
    }

    #[test]
    fn only_the_machine_itself_is_served_by_default() {
        assert_eq!(address(&["--metrics-port=9464"]).as_deref(), Some("127.0.0.1:9464"));
        let all = ["--metrics-port=1", "--metrics-listen-address", "[::]"];
        assert_eq!(address(&all).as_deref(), Some("[::]:1"));
    }

    /// A wrapper that adds its flags to those of a user repeats them, as daprd allows.
    #[test]
    fn the_last_port_counts() {
        let twice = ["--metrics-port=1", "--metrics-port=2"];
        assert_eq!(address(&twice).as_deref(), Some("127.0.0.1:2"));
    }
}
