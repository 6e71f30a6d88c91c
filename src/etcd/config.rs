//! The properties of `lock.etcd`: those of `state.etcd`, plus a user.

use std::fmt;

use etcd_client::{Certificate, Identity, TlsOptions};
use leasehold_lock::properties::Properties;

use super::keys::is_prefix;

/// etcd's default limit of operations in one transaction (its `--max-txn-ops`).
const TXN_OPS_DEFAULT: usize = 128;

/// Where etcd is and how to log in. `Debug` shows no secret.
#[derive(Clone)]
pub(super) struct Config {
    /// One URL for each member, with `http://` or `https://`.
    pub(super) endpoints: Vec<String>,
    /// The prefix of all keys; empty by default.
    pub(super) key_prefix: String,
    /// Certificates, if TLS is on.
    pub(super) tls: Option<TlsOptions>,
    /// User and password, if etcd asks for them.
    pub(super) user: Option<(String, String)>,
    /// The server's `--max-txn-ops`. A smaller limit is learned from its refusals.
    pub(super) txn_ops_max: usize,
}

impl Config {
    /// Reads the properties and collects all mistakes.
    pub(super) fn read(properties: &mut Properties) -> Self {
        let endpoints = properties.required("endpoints");
        let key_prefix = properties.text("keyPrefixPath").unwrap_or_default();
        if !is_prefix(&key_prefix) {
            properties.refuse(
                "keyPrefixPath",
                "has a part \"r\" between slashes, under which stores with a shorter prefix keep \
                 their keys; choose another name",
            );
        }
        let tls = tls(properties);
        let user = properties.pair("username", "password");
        let txn_ops_max = properties.number("maxTxnOps", TXN_OPS_DEFAULT, 4..=100_000);
        Self {
            endpoints: split_endpoints(properties, &endpoints, tls.is_some()),
            key_prefix,
            tls,
            user,
            txn_ops_max,
        }
    }

    /// Of an etcd that cannot be reached.
    #[cfg(test)]
    pub(super) fn offline() -> Self {
        let endpoint = ("endpoints".to_owned(), "127.0.0.1:1".to_owned());
        Self::read(&mut Properties::new([endpoint]))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("endpoints", &self.endpoints)
            .field("key_prefix", &self.key_prefix)
            .field("tls", &self.tls.is_some())
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("txn_ops_max", &self.txn_ops_max)
            .finish()
    }
}

fn split_endpoints(properties: &mut Properties, list: &str, tls: bool) -> Vec<String> {
    let mut endpoints = Vec::new();
    for endpoint in list.split(',').map(str::trim).filter(|endpoint| !endpoint.is_empty()) {
        // The endpoint is not repeated here, because it holds a secret.
        if endpoint.contains('@') {
            properties.refuse(
                "endpoints",
                "has a user in it; write host:port, and give username and password by their keys",
            );
            continue;
        }
        let scheme = if tls { "https" } else { "http" };
        let url = match endpoint.contains("://") {
            true => endpoint.to_owned(),
            false => format!("{scheme}://{endpoint}"),
        };
        match url.parse::<http::Uri>() {
            Ok(uri) if uri.scheme_str() == Some(scheme) && uri.port_u16().is_some() => {
                endpoints.push(url);
            }
            _ => properties.refuse(
                "endpoints",
                format!(
                    "names {endpoint:?}; write host:port, several separated by commas; tlsEnable \
                     alone decides whether they use TLS"
                ),
            ),
        }
    }
    if endpoints.is_empty() && !list.is_empty() && list.split(',').all(|e| e.trim().is_empty())
    {
        properties.refuse("endpoints", "names no endpoint; write host:port");
    }
    endpoints
}

/// The certificates, if TLS is on.
fn tls(properties: &mut Properties) -> Option<TlsOptions> {
    if !properties.flag("tlsEnable", false) {
        for key in ["ca", "cert", "key"] {
            properties.ignore(key);
        }
        return None;
    }
    let mut options = TlsOptions::new();
    match properties.text("ca") {
        Some(ca) if is_pem(&ca) => options = options.ca_certificate(Certificate::from_pem(ca)),
        Some(_) => {
            properties.refuse("ca", "is not PEM; give the certificate itself, not a path");
        }
        None => {
            properties.refuse("ca", "is missing; tlsEnable needs the CA's certificate as PEM");
        }
    }
    if let Some((cert, key)) = properties.pair("cert", "key") {
        if !is_pem(&cert) {
            properties.refuse("cert", "is not PEM; give the certificate itself, not a path");
        }
        if !is_pem(&key) {
            properties.refuse("key", "is not PEM; give the key itself, not a path");
        }
        options = options.identity(Identity::from_pem(cert, key));
    }
    Some(options)
}

fn is_pem(text: &str) -> bool {
    text.contains("-----BEGIN ") && text.contains("-----END ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(items: &[(&str, &str)]) -> (Config, Vec<String>) {
        let mut properties =
            Properties::new(items.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let config = Config::read(&mut properties);
        let warnings = properties.warnings();
        let fields = match properties.finish() {
            Ok(()) => warnings,
            Err(violations) => {
                violations.into_iter().map(|violation| violation.field).collect()
            }
        };
        (config, fields)
    }

    #[test]
    fn endpoints_are_separated_by_commas_and_need_no_scheme() {
        let (config, problems) = read(&[("endpoints", "a:1, http://b:2,")]);
        assert_eq!(config.endpoints, ["http://a:1", "http://b:2"]);
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn bad_endpoints_are_refused_by_name() {
        for bad in ["", ",", "a", "ftp://a:1", "https://a:1", "a b:1", "unix:///x"] {
            assert_eq!(read(&[("endpoints", bad)]).1, ["endpoints"], "{bad:?}");
        }
    }

    #[test]
    fn credentials_in_an_endpoint_are_refused_unrepeated() {
        for list in ["http://me:hunter2@a:1", "me:hunter2@a:1,b:2"] {
            let mut properties = Properties::new([("endpoints".to_owned(), list.to_owned())]);
            let config = Config::read(&mut properties);
            let text = format!("{config:?} {:?}", properties.finish().unwrap_err());
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    /// Trap: etcd 38
    #[test]
    fn a_prefix_within_the_keys_of_another_is_refused() {
        let with = |prefix| read(&[("endpoints", "a:1"), ("keyPrefixPath", prefix)]).1;
        for bad in ["r", "/locks/r", "/locks/r/", "/locks/r/orders/q", "r/x"] {
            assert_eq!(with(bad), ["keyPrefixPath"], "{bad:?}");
        }
        for good in ["", "/", "/locks", "/locks/rr", "/locks/R/x", "/locks/s"] {
            assert!(with(good).is_empty(), "{good:?}");
        }
    }

    #[test]
    fn certificates_are_pem_and_complete() {
        let pem = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----";
        let base = [("endpoints", "a:1"), ("tlsEnable", "true")];
        assert_eq!(read(&base).1, ["ca"]);
        assert_eq!(read(&[base[0], base[1], ("ca", "/etc/ca.pem")]).1, ["ca"]);
        assert_eq!(read(&[base[0], base[1], ("ca", pem), ("cert", pem)]).1, ["key"]);
        assert!(read(&[base[0], base[1], ("ca", pem)]).0.tls.is_some());
    }

    #[test]
    fn a_user_needs_a_password_and_the_other_way_round() {
        assert_eq!(read(&[("endpoints", "a:1"), ("username", "u")]).1, ["password"]);
        assert_eq!(read(&[("endpoints", "a:1"), ("password", "p")]).1, ["username"]);
    }

    #[test]
    fn debug_shows_no_secret() {
        let (config, _) =
            read(&[("endpoints", "a:1"), ("username", "u"), ("password", "hunter2")]);
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
