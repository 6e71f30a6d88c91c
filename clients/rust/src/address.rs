//! Where the sidecar is.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint, Uri};

use crate::error::{Error, Failure};

const ENDPOINT: &str = "DAPR_GRPC_ENDPOINT";
const PORT: &str = "DAPR_GRPC_PORT";
const DEFAULT_PORT: &str = "50001";
/// How often the sidecar is pinged while a call is open, and how long its answer may take.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the sidecar is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// As it was given, except that a default port is added.
    pub(crate) text: String,
    /// Its name in errors: the option or the variable.
    source: &'static str,
}

impl Address {
    /// The address that the caller gave.
    pub(crate) fn given(text: &str) -> Self {
        Self::new("address", text)
    }

    /// The address that the environment names, or else the default one, as in Dapr's SDKs.
    pub(crate) fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        if let Some(endpoint) = variable(ENDPOINT) {
            return Ok(Self::new(ENDPOINT, &endpoint));
        }
        let port = variable(PORT).unwrap_or_else(|| DEFAULT_PORT.to_owned());
        if !is_port(&port) {
            return Err(Failure::option(PORT, &format!("{port:?} is not a port")));
        }
        Ok(Self::new(PORT, &format!("127.0.0.1:{port}")))
    }

    fn new(source: &'static str, text: &str) -> Self {
        let host_alone = !text.is_empty()
            && !text.starts_with("unix:")
            && (!text.contains(':') || text.starts_with('[') && text.ends_with(']'));
        let port = if host_alone { format!(":{DEFAULT_PORT}") } else { String::new() };
        Self { text: format!("{text}{port}"), source }
    }

    /// A channel that connects when it is first used.
    pub(crate) fn connect(&self) -> Result<Channel, Error> {
        let Self { text, source } = self;
        let bad = |problem: &str| Failure::option(source, &format!("{text:?} {problem}"));
        let has_scheme = text.contains("://") || text.starts_with("unix:");
        let url = if has_scheme { text.clone() } else { format!("http://{text}") };
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(|_| bad("is not an address of a sidecar"))?;
        let scheme = url.split_once(':').map(|(scheme, _)| scheme);
        // The connector silently ignores an invalid port.
        let has_port = has_scheme || endpoint.uri().port().is_some();
        if scheme != Some("unix") && !(has_port && names_a_host(endpoint.uri())) {
            return Err(bad("is not an address of a sidecar"));
        }
        let endpoint = match scheme {
            Some("http" | "unix") => endpoint,
            Some("https") => encrypted(endpoint).map_err(|problem| bad(&problem))?,
            _ => return Err(bad("is neither http, https, unix nor host:port")),
        };
        // Without these a connection that died without a reset is used forever.
        let endpoint = endpoint.http2_keep_alive_interval(PING_INTERVAL);
        Ok(endpoint.keep_alive_timeout(PING_TIMEOUT).connect_lazy())
    }
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Whether there is a host, and nothing beside it but a port.
fn names_a_host(url: &Uri) -> bool {
    url.authority().is_some_and(|authority| {
        let port = authority.as_str().strip_prefix(authority.host());
        let port = port.map(|port| port.strip_prefix(':').map_or(port.is_empty(), is_port));
        !authority.host().is_empty() && port == Some(true)
    })
}

#[cfg(feature = "tls")]
fn encrypted(endpoint: Endpoint) -> Result<Endpoint, String> {
    let settings = tonic::transport::ClientTlsConfig::new().with_native_roots();
    endpoint.tls_config(settings).map_err(|error| format!("cannot be used: {error}"))
}

#[cfg(not(feature = "tls"))]
fn encrypted(_: Endpoint) -> Result<Endpoint, String> {
    Err("needs the feature `tls` of leasehold-client".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Address, Error> {
        Address::from_environment(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn resolved(variables: &[(&str, &str)]) -> String {
        found(variables).unwrap().text
    }

    #[test]
    fn the_endpoint_comes_before_the_port_and_the_port_before_the_default() {
        let (endpoint, port) = (("DAPR_GRPC_ENDPOINT", "h:1"), ("DAPR_GRPC_PORT", "4"));
        assert_eq!(resolved(&[endpoint, port]), "h:1");
        assert_eq!(resolved(&[("DAPR_GRPC_ENDPOINT", ""), port]), "127.0.0.1:4");
        assert_eq!(resolved(&[]), "127.0.0.1:50001");
    }

    #[test]
    fn a_host_alone_gets_the_default_port() {
        for (given, text) in [
            ("localhost", "localhost:50001"),
            ("[::1]", "[::1]:50001"),
            ("[::1]:4", "[::1]:4"),
            ("http://h", "http://h"),
            ("unix:/tmp/s", "unix:/tmp/s"),
            ("unix:s]", "unix:s]"),
        ] {
            assert_eq!(resolved(&[(ENDPOINT, given)]), text);
            assert_eq!(Address::given(given).text, text);
        }
    }

    #[tokio::test]
    async fn a_bad_variable_is_named() {
        for port in ["abc", "0", "65536", "-1", " 4"] {
            let error = found(&[(PORT, port)]).unwrap_err().to_string();
            assert_eq!(error, format!("INVALID_REQUEST: {PORT} {port:?} is not a port"));
        }
        let error = found(&[(ENDPOINT, "h:abc")]).unwrap().connect().unwrap_err().to_string();
        assert!(error.starts_with("INVALID_REQUEST: DAPR_GRPC_ENDPOINT \"h:abc\" "), "{error}");
    }

    #[tokio::test]
    async fn every_form_of_an_address_is_taken() {
        let forms =
            ["localhost", "[::1]:50001", "http://h", "http://h:1", "unix:/tmp/s", "unix:///s"];
        for form in forms {
            Address::given(form).connect().unwrap();
        }
        #[cfg(feature = "tls")]
        Address::given("https://h").connect().unwrap();
        let bad = [
            "",
            "ftp://h:1",
            "a b:1",
            "h:",
            ":1",
            "h:abc",
            "h:0",
            "::1",
            "http://h:99999",
            "h/p",
        ];
        for form in bad {
            let error = Address::given(form).connect().unwrap_err().to_string();
            assert!(error.starts_with("INVALID_REQUEST: address "), "{form}: {error}");
        }
    }
}
