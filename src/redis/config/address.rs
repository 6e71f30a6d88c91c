//! The addresses in `redisHost`.

use ::redis::ConnectionAddr;

/// The port of a server.
pub(super) const PORT: u16 = 6379;
/// The port of a Sentinel.
pub(super) const SENTINEL_PORT: u16 = 26379;
/// How many servers may be listed.
const LISTED_MAX: usize = 32;

/// The property that is wrong, and why.
pub(super) type Problem = (&'static str, String);

/// How addresses are completed.
#[derive(Clone, Copy)]
pub(super) struct Addressing {
    /// `redisPort`; 0 if it is absent.
    pub(super) port: u16,
    pub(super) default_port: u16,
    pub(super) tls: bool,
    pub(super) insecure: bool,
}

impl Addressing {
    /// Reads the address of one server.
    pub(super) fn server(self, host: &str) -> Result<ConnectionAddr, Problem> {
        if let Some(path) = host.strip_prefix("unix:") {
            if self.tls {
                return Err(("enableTLS", "must be false for a Unix socket".into()));
            }
            return Ok(ConnectionAddr::Unix(path.into()));
        }
        if host.contains(',') {
            return Err((
                "redisHost",
                "names several hosts; name one server, or set failover: true if these are \
                 Sentinels, redisType: cluster if they are nodes of a Cluster"
                    .into(),
            ));
        }
        self.address(host)
    }

    /// Reads a list of servers of this kind.
    pub(super) fn list(self, hosts: &str, kind: &str) -> Result<Vec<ConnectionAddr>, Problem> {
        let mut listed = Vec::new();
        for host in hosts.split(',').map(str::trim).filter(|host| !host.is_empty()) {
            if host.starts_with("unix:") {
                return Err(("redisHost", format!("must list each {kind} as host:port")));
            }
            let address = self.address(host)?;
            if !listed.contains(&address) {
                listed.push(address);
            }
        }
        match listed.len() {
            0 => Err(("redisHost", format!("lists no {kind}; write host:port,host:port"))),
            1..=LISTED_MAX => Ok(listed),
            _ => Err(("redisHost", format!("lists more than {LISTED_MAX} of them"))),
        }
    }

    fn address(self, host: &str) -> Result<ConnectionAddr, Problem> {
        if let Some((scheme, rest)) = host.split_once("://") {
            // A URL may contain a password, which must not be repeated.
            let (tls, rest) = (scheme == "rediss", rest.rsplit('@').next().unwrap_or_default());
            let tls = if tls { ", enableTLS: true for TLS" } else { "" };
            let rest = rest.split('/').next().unwrap_or_default();
            return Err((
                "redisHost",
                format!("is a URL; write {rest:?} alone{tls}, and the rest in keys of its own"),
            ));
        }
        let (host, named_port) = split(host)?;
        let port = match (named_port, self.port) {
            (Some(named), 0) => named,
            (Some(named), port) if named == port => named,
            (Some(named), _) => {
                return Err((
                    "redisPort",
                    format!("differs from the port {named} in redisHost; give it once"),
                ));
            }
            (None, 0) => self.default_port,
            (None, port) => port,
        };
        Ok(if self.tls {
            ConnectionAddr::TcpTls { host, port, insecure: self.insecure, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        })
    }
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address.
fn split(text: &str) -> Result<(String, Option<u16>), Problem> {
    let bad = || ("redisHost", "is not an address; write host:port".to_owned());
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(bad)?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host.to_owned(), Some(port.parse().map_err(|_| bad())?))),
            None if after.is_empty() => Ok((host.to_owned(), None)),
            None => Err(bad()),
        };
    }
    match text.rsplit_once(':') {
        Some((host, _)) if host.contains(':') => Ok((text.to_owned(), None)),
        Some((host, port)) if !host.is_empty() => {
            Ok((host.to_owned(), Some(port.parse().map_err(|_| bad())?)))
        }
        None if !text.is_empty() && !text.contains('/') => Ok((text.to_owned(), None)),
        _ => Err(bad()),
    }
}
