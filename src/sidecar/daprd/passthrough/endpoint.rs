//! Where the daprd behind the sidecar listens.

use std::{fmt, net::IpAddr};

use http::uri::{Authority, PathAndQuery, Scheme, Uri};

use crate::usage::UsageError;

/// One listener of the daprd behind the sidecar.
///
/// Written `host:port`, `http://host:port` or `https://host:port`. `Display`
/// shows the URL and the flag that it came from, as errors name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    flag: &'static str,
    scheme: Scheme,
    authority: Authority,
}

impl Endpoint {
    /// Reads the value of `flag`.
    pub fn parse(flag: &'static str, text: &str) -> Result<Self, UsageError> {
        let refuse = |problem: String| refuse(flag, &problem);
        let text = text.trim();
        let (scheme, rest) = match text.split_once("://") {
            None => (Scheme::HTTP, text),
            Some(("http", rest)) => (Scheme::HTTP, rest),
            Some(("https", rest)) => (Scheme::HTTPS, rest),
            Some((other, _)) => {
                return Err(refuse(format!("has the scheme {other:?}, which is not spoken")));
            }
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#']) {
            return Err(refuse("has a path, but calls keep their own".to_owned()));
        }
        if rest.contains('@') {
            return Err(refuse("has a user name, which daprd does not take".to_owned()));
        }
        let authority: Authority =
            rest.parse().map_err(|error| refuse(format!("is no address: {error}")))?;
        if authority.host().is_empty() {
            return Err(refuse("has no host".to_owned()));
        }
        match authority.port_u16() {
            None | Some(0) => Err(refuse("has no port".to_owned())),
            Some(_) => Ok(Self { flag, scheme, authority }),
        }
    }

    /// Whether it is reached through TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Whether this endpoint names `address` and `port`. No host name is resolved;
    /// `localhost` stands for every local address.
    pub(crate) fn is_at(&self, address: IpAddr, port: u16) -> bool {
        let host = self.authority.host();
        let is_local = address.is_loopback() || address.is_unspecified();
        let is_there = if host.eq_ignore_ascii_case("localhost") {
            is_local
        } else {
            let host = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
            host.is_ok_and(|host| {
                host == address
                    || (host.is_unspecified() && is_local)
                    || (host.is_loopback() && address.is_unspecified())
            })
        };
        is_there && self.authority.port_u16() == Some(port)
    }

    /// An error about this endpoint.
    pub(crate) fn refuse(&self, problem: &str) -> UsageError {
        refuse(self.flag, problem)
    }

    /// The URI of a call that arrived with this path, which stays as it was
    /// written, percent-encodings included.
    pub(super) fn uri(&self, path: Option<&PathAndQuery>) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query =
            Some(path.cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
        // Cannot fail, because all three parts are present.
        Uri::from_parts(parts).unwrap_or_default()
    }

    /// The URI of daprd's health check.
    pub(super) fn health(&self) -> Uri {
        self.uri(Some(&PathAndQuery::from_static("/v1.0/healthz")))
    }

    /// The URL of a path below the endpoint.
    pub fn url(&self, path: &str) -> Result<Uri, http::uri::InvalidUri> {
        Ok(self.uri(Some(&path.parse()?)))
    }
}

fn refuse(flag: &str, problem: &str) -> UsageError {
    UsageError(format!(
        "{flag} {problem}; write host:port, http://host:port or https://host:port"
    ))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{} ({})", self.scheme, self.authority, self.flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAG: &str = "--daprd-grpc-endpoint";

    #[test]
    fn a_bare_address_is_plain_text() {
        let endpoint = Endpoint::parse(FLAG, "localhost:50002").unwrap();
        assert_eq!(endpoint.to_string(), "http://localhost:50002 (--daprd-grpc-endpoint)");
        assert!(Endpoint::parse(FLAG, "[::1]:50002").is_ok());
    }

    #[test]
    fn a_url_says_its_scheme_and_may_end_in_a_slash() {
        let endpoint = Endpoint::parse(FLAG, "https://daprd:50002/").unwrap();
        assert_eq!(endpoint.uri(None), "https://daprd:50002/");
    }

    #[test]
    fn an_endpoint_is_known_at_the_address_that_it_names() {
        for (endpoint, address, is_it) in [
            ("localhost:7", "127.0.0.1", true),
            ("LOCALHOST:7", "0.0.0.0", true),
            ("127.0.0.1:7", "127.0.0.1", true),
            ("http://127.0.0.1:7", "::", true),
            ("[::1]:7", "::1", true),
            ("0.0.0.0:7", "127.0.0.1", true),
            ("10.0.0.1:7", "10.0.0.1", true),
            ("localhost:8", "127.0.0.1", false),
            ("localhost:7", "10.0.0.1", false),
            ("127.0.0.1:7", "10.0.0.1", false),
            ("daprd:7", "127.0.0.1", false),
        ] {
            let found =
                Endpoint::parse(FLAG, endpoint).unwrap().is_at(address.parse().unwrap(), 7);
            assert_eq!(found, is_it, "{endpoint} at {address}");
        }
    }

    #[test]
    fn a_path_keeps_its_percent_encodings() {
        let endpoint = Endpoint::parse(FLAG, "h:1").unwrap();
        let uri = endpoint.uri(Some(&"/v1.0/a%2Fb//c%20d?x=%26".parse().unwrap()));
        assert_eq!(uri, "http://h:1/v1.0/a%2Fb//c%20d?x=%26");
    }

    #[test]
    fn what_is_no_endpoint_is_refused_by_its_flag() {
        for (bad, why) in [
            ("", "is no address"),
            ("localhost", "no port"),
            ("localhost:0", "no port"),
            (":3500", "no host"),
            ("localhost:99999", "no port"),
            ("unix:///tmp/daprd.sock", "scheme"),
            ("dns://8.8.8.8/h:1", "scheme"),
            ("http://h:1/base", "path"),
            ("h:1?x", "path"),
            ("http://u:p@h:1", "user name"),
            ("h h:1", "is no address"),
        ] {
            let error = Endpoint::parse(FLAG, bad).unwrap_err().to_string();
            assert!(error.starts_with(FLAG) && error.contains(why), "{bad:?}: {error}");
        }
    }
}
