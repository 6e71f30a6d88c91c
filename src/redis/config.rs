//! The properties of the component, which are those of Dapr's built-in `lock.redis`.

#[cfg(target_os = "linux")]
use std::time::Duration;

use ::redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, RedisConnectionInfo, RedisError, TlsCertificates, io::tcp::TcpSettings,
};

use leasehold_lock::properties::Properties;

const PORT: u16 = 6379;
/// How long without an acknowledgement until the kernel gives up a connection, also a closed
/// one with requests left to send.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// Keys of the built-in store that have no effect here, because there is one connection, and
/// `operationTimeout` limits its timeouts and retries.
const WITHOUT_EFFECT: [&str; 16] = [
    "redisMaxRetries",
    "redisMinRetryInterval",
    "redisMaxRetryInterval",
    "dialTimeout",
    "readTimeout",
    "writeTimeout",
    "poolSize",
    "poolTimeout",
    "maxConnAge",
    "minIdleConns",
    "idleTimeout",
    "idleCheckFrequency",
    "maxRetries",
    "maxRetryBackoff",
    "redeliverInterval",
    "processingTimeout",
];

/// Keys that are refused if they are set, because they select what is not supported.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("sentinelMasterName", "is for Sentinel, which is not supported yet; name one node"),
    ("sentinelUsername", "is for Sentinel, which is not supported yet; name one node"),
    ("sentinelPassword", "is for Sentinel, which is not supported yet; name one node"),
];

/// Flags that are refused if they are true, because they select what is not supported.
const UNSUPPORTED_FLAGS: [(&str, &str); 3] = [
    ("failover", "is for Sentinel, which is not supported yet; name one node"),
    ("useEntraID", "is not supported; use redisUsername and redisPassword"),
    ("useOIDC", "is not supported; use redisUsername and redisPassword"),
];

/// Keys that belong to `useOIDC` and have no effect without it.
const OIDC: [&str; 9] = [
    "oidcTokenEndpoint",
    "oidcClientID",
    "oidcClientAssertionCert",
    "oidcClientAssertionKey",
    "oidcResource",
    "oidcAudience",
    "oidcScopes",
    "oidcKid",
    "oidcCACert",
];

/// Reads how to connect to Redis. `None` if a property was refused.
pub(super) fn read(properties: &mut Properties) -> Option<Client> {
    refuse_unsupported(properties);
    let host = properties.required("redisHost");
    let port = properties.number("redisPort", 0, 0..=u16::MAX);
    let tls = properties.flag("enableTLS", false);
    let insecure = properties.flag("insecureSkipTLSVerify", false);
    let certificate = properties.text("clientCert");
    let key = properties.text("clientKey");
    let username = properties.text("redisUsername");
    let password = properties.text("redisPassword");
    let database = properties.number("redisDB", 0_i64, 0..=i64::from(i32::MAX));
    if username.is_some() && password.is_none() {
        properties.refuse("redisPassword", "is missing, though redisUsername is set");
    }
    let address = match address(&host, port, tls, insecure) {
        Ok(address) => address,
        Err((field, problem)) => {
            if !host.is_empty() {
                properties.refuse(field, problem);
            }
            return None;
        }
    };
    // The client does not send its library's name: servers before 7.2 do not know the command,
    // and users would need another permission.
    let mut settings = RedisConnectionInfo::default()
        .set_db(database)
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    if let Some(username) = username {
        settings = settings.set_username(username);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    let certificates = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(ClientTlsConfig {
            client_cert: certificate.into_bytes(),
            client_key: key.into_bytes(),
        }),
        (None, None) => None,
        (Some(_), None) => {
            properties.refuse("clientKey", "is missing, though clientCert is set");
            return None;
        }
        (None, Some(_)) => {
            properties.refuse("clientCert", "is missing, though clientKey is set");
            return None;
        }
    };
    if certificates.is_some() && !tls {
        properties.refuse("enableTLS", "must be true for clientCert and clientKey to be used");
        return None;
    }
    match client(address, settings, tls, certificates) {
        Ok(client) => Some(client),
        Err(_) if tls => {
            properties
                .refuse("clientCert", "and clientKey must be a certificate and its key in PEM");
            None
        }
        Err(_) => {
            properties.refuse("redisHost", "is not an address; write host:port");
            None
        }
    }
}

fn refuse_unsupported(properties: &mut Properties) {
    match properties.text("redisType").as_deref() {
        None | Some("node") => {}
        Some("cluster" | "sentinel") => properties.refuse(
            "redisType",
            "may only be node: Cluster and Sentinel are not supported yet",
        ),
        Some(_) => properties.refuse("redisType", "must be node"),
    }
    for (key, problem) in UNSUPPORTED {
        if properties.text(key).is_some() {
            properties.refuse(key, problem);
        }
    }
    for (key, problem) in UNSUPPORTED_FLAGS {
        if properties.flag(key, false) {
            properties.refuse(key, problem);
        }
    }
    for key in WITHOUT_EFFECT.into_iter().chain(OIDC) {
        properties.ignore(key);
    }
}

type Problem = (&'static str, String);

fn address(
    host: &str,
    port: u16,
    tls: bool,
    insecure: bool,
) -> Result<ConnectionAddr, Problem> {
    if let Some(path) = host.strip_prefix("unix:") {
        if tls {
            return Err(("enableTLS", "must be false for a Unix socket".into()));
        }
        return Ok(ConnectionAddr::Unix(path.into()));
    }
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
    if host.contains(',') {
        return Err((
            "redisHost",
            "names several hosts; only a single node is supported".into(),
        ));
    }
    let (host, named_port) = split(host)?;
    let port = match (named_port, port) {
        (Some(named), 0) => named,
        (Some(named), port) if named == port => named,
        (Some(named), _) => {
            return Err((
                "redisPort",
                format!("differs from the port {named} in redisHost; give it once"),
            ));
        }
        (None, 0) => PORT,
        (None, port) => port,
    };
    Ok(if tls {
        ConnectionAddr::TcpTls { host, port, insecure, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    })
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

fn client(
    address: ConnectionAddr,
    settings: RedisConnectionInfo,
    tls: bool,
    certificates: Option<ClientTlsConfig>,
) -> Result<Client, RedisError> {
    let info: ConnectionInfo = address
        .into_connection_info()?
        .set_tcp_settings(tcp_settings())
        .set_redis_settings(settings);
    if tls {
        let certificates = TlsCertificates { client_tls: certificates, root_cert: None };
        Client::build_with_tls(info, certificates)
    } else {
        Client::open(info)
    }
}

fn tcp_settings() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED_MAX);
    settings
}

#[cfg(test)]
mod tests {
    use leasehold_lock::Violation;

    use super::*;

    fn read_all(items: &[(&str, &str)]) -> Result<Client, Vec<Violation>> {
        let mut properties =
            Properties::new(items.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let client = read(&mut properties);
        assert_eq!(properties.warnings(), Vec::<String>::new());
        properties.finish().map(|()| client.unwrap())
    }

    fn refused(items: &[(&str, &str)]) -> Vec<String> {
        let mut fields: Vec<_> =
            read_all(items).unwrap_err().into_iter().map(|violation| violation.field).collect();
        fields.sort();
        fields
    }

    fn reached(items: &[(&str, &str)]) -> String {
        read_all(items).unwrap().get_connection_info().addr().to_string()
    }

    #[test]
    fn the_port_is_in_the_host_or_beside_it_or_6379() {
        assert_eq!(reached(&[("redisHost", "h:7000")]), "h:7000");
        assert_eq!(reached(&[("redisHost", "h"), ("redisPort", "7000")]), "h:7000");
        assert_eq!(reached(&[("redisHost", "h:7000"), ("redisPort", "7000")]), "h:7000");
        assert_eq!(reached(&[("redisHost", "h")]), "h:6379");
        assert_eq!(reached(&[("redisHost", "[::1]:7000")]), "::1:7000");
        assert_eq!(reached(&[("redisHost", "::1")]), "::1:6379");
        assert_eq!(refused(&[("redisHost", "h:7000"), ("redisPort", "7001")]), ["redisPort"]);
    }

    #[test]
    fn an_invalid_host_is_refused() {
        for bad in ["h:port", ":7000", "[::1", "redis://h", "a:1,b:2"] {
            assert_eq!(refused(&[("redisHost", bad)]), ["redisHost"], "{bad}");
        }
        assert_eq!(refused(&[]), ["redisHost"]);
    }

    #[test]
    fn a_url_is_refused_by_its_key_without_repeating_its_password() {
        for (url, shown) in [
            ("redis://h:6379", "\"h:6379\""),
            ("rediss://me:hunter2@h:6380/1", "\"h:6380\" alone, enableTLS: true"),
        ] {
            let violations = read_all(&[("redisHost", url)]).unwrap_err();
            assert_eq!(violations[0].field, "redisHost");
            assert!(violations[0].problem.contains(shown), "{violations:?}");
            assert!(!violations[0].problem.contains("hunter2"), "{violations:?}");
        }
    }

    #[test]
    fn sentinel_and_cluster_are_refused_all_at_once() {
        assert_eq!(
            refused(&[
                ("redisHost", "h"),
                ("redisType", "cluster"),
                ("failover", "true"),
                ("sentinelMasterName", "m"),
            ]),
            ["failover", "redisType", "sentinelMasterName"]
        );
    }

    #[test]
    fn every_key_of_the_built_in_store_is_known() {
        let mut items = vec![("redisHost", "h")];
        items.extend(WITHOUT_EFFECT.map(|key| (key, "1")));
        assert!(read_all(&items).is_ok());
    }

    #[test]
    fn half_a_client_certificate_is_refused() {
        let host = ("redisHost", "h");
        assert_eq!(refused(&[host, ("enableTLS", "true"), ("clientCert", "c")]), ["clientKey"]);
        assert_eq!(refused(&[host, ("enableTLS", "true"), ("clientKey", "k")]), ["clientCert"]);
        assert_eq!(
            refused(&[host, ("enableTLS", "true"), ("clientKey", "k"), ("clientCert", "c")]),
            ["clientCert"]
        );
    }

    #[test]
    fn a_password_is_in_no_debug_text() {
        let client = read_all(&[("redisHost", "h"), ("redisPassword", "hunter2")]).unwrap();
        assert!(!format!("{client:?}").contains("hunter2"));
    }
}
