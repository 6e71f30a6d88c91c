//! The properties of the component, which are those of Dapr's built-in `lock.redis`.

mod address;

#[cfg(target_os = "linux")]
use std::time::Duration;

use ::redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, RedisConnectionInfo, RedisError, TlsCertificates, io::tcp::TcpSettings,
};

use leasehold_lock::properties::Properties;

use self::address::{Addressing, PORT, SENTINEL_PORT};

/// How the servers are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Node,
    Sentinel,
    Cluster,
}

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

/// Keys that have an effect with Sentinel only, and are refused without it.
const FOR_SENTINEL: [&str; 3] = ["sentinelMasterName", "sentinelUsername", "sentinelPassword"];

/// Flags that are refused if they are true, because they select what is not supported.
const UNSUPPORTED_FLAGS: [&str; 2] = ["useEntraID", "useOIDC"];

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

/// How to reach the server that grants locks.
#[derive(Debug)]
pub(super) enum Setup {
    /// One server, at an address that stays.
    Node(Client),
    /// The master that Sentinels name.
    Sentinel(SentinelSetup),
    /// The nodes of a Cluster.
    Cluster(ClusterSetup),
}

/// What is needed to reach the nodes of a Cluster.
#[derive(Clone, Debug)]
pub(super) struct ClusterSetup {
    /// Those that are listed: at least one.
    pub(super) nodes: Vec<Client>,
    /// How to connect to a node, but for its address.
    pub(super) node: ConnectionInfo,
}

/// What is needed to ask Sentinels, and to reach the master that they name.
#[derive(Debug)]
pub(super) struct SentinelSetup {
    /// At least one.
    pub(super) sentinels: Vec<Client>,
    /// What the Sentinels call the master.
    pub(super) master_name: String,
    /// How to connect to the master, but for its address.
    pub(super) master: ConnectionInfo,
}

/// Who is allowed to connect.
struct Credentials {
    username: Option<String>,
    password: Option<String>,
}

/// Reads how to connect to Redis. `None` if a property was refused.
pub(super) fn read(properties: &mut Properties) -> Option<Setup> {
    let mode = read_mode(properties);
    let is_sentinel = mode == Mode::Sentinel;
    refuse_unsupported(properties, is_sentinel);
    let host = properties.required("redisHost");
    let port = properties.number("redisPort", 0, 0..=u16::MAX);
    let tls = properties.flag("enableTLS", false);
    let insecure = properties.flag("insecureSkipTLSVerify", false);
    let certificate = properties.text("clientCert");
    let key = properties.text("clientKey");
    let user = read_credentials(properties, "redisUsername", "redisPassword");
    let database = properties.number("redisDB", 0_i64, 0..=i64::from(i32::MAX));
    if mode == Mode::Cluster && database != 0 {
        properties.refuse("redisDB", "must be 0, because a Cluster has one database only");
    }
    let watched = is_sentinel.then(|| {
        let master_name = properties.text("sentinelMasterName");
        if master_name.is_none() {
            properties
                .refuse("sentinelMasterName", "is missing; Sentinels know the master by it");
        }
        (master_name, read_credentials(properties, "sentinelUsername", "sentinelPassword"))
    });
    let default_port = if is_sentinel { SENTINEL_PORT } else { PORT };
    let addressing = Addressing { port, default_port, tls, insecure };
    let addresses = match mode {
        Mode::Node => addressing.server(&host).map(|address| vec![address]),
        Mode::Sentinel => addressing.list(&host, "Sentinel"),
        Mode::Cluster => addressing.list(&host, "node"),
    };
    let addresses = match addresses {
        Ok(addresses) => addresses,
        Err((field, problem)) => {
            if !host.is_empty() {
                properties.refuse(field, problem);
            }
            return None;
        }
    };
    let certificates = read_certificates(properties, certificate, key, tls)?;
    let user = settings(user).set_db(database);
    let (asked, login) = match watched {
        Some((master_name, for_sentinels)) => {
            (Some((master_name?, user)), settings(for_sentinels))
        }
        None => (None, user),
    };
    let clients: Result<Vec<_>, RedisError> = addresses
        .into_iter()
        .map(|address| client(address, login.clone(), certificates.as_ref()))
        .collect();
    let clients = match clients {
        Ok(clients) => clients,
        Err(_) if tls => {
            properties
                .refuse("clientCert", "and clientKey must be a certificate and its key in PEM");
            return None;
        }
        Err(_) => {
            properties.refuse("redisHost", "is not an address; write host:port");
            return None;
        }
    };
    let first = clients.first()?.clone();
    let like = first.get_connection_info().clone();
    Some(match asked {
        Some((master_name, user)) => Setup::Sentinel(SentinelSetup {
            sentinels: clients,
            master_name,
            master: like.set_redis_settings(user),
        }),
        None if mode == Mode::Cluster => {
            Setup::Cluster(ClusterSetup { nodes: clients, node: like })
        }
        None => Setup::Node(first),
    })
}

/// Reads the mode. `failover` decides whether Sentinels are asked, as in the built-in store.
fn read_mode(properties: &mut Properties) -> Mode {
    let kind = properties.text("redisType");
    let is_given = properties.text("failover").is_some();
    let failover = properties.flag("failover", false);
    let of_failover = if failover { Mode::Sentinel } else { Mode::Node };
    match (kind.as_deref(), failover) {
        (None | Some("node"), _) => of_failover,
        (Some("sentinel"), false) if is_given => {
            properties.refuse("redisType", "is sentinel, though failover is false");
            properties.refuse("failover", "is false, though redisType is sentinel");
            Mode::Sentinel
        }
        (Some("sentinel"), _) => Mode::Sentinel,
        (Some("cluster"), true) => {
            properties.refuse("redisType", "is cluster, though failover is true");
            properties.refuse("failover", "is true, though redisType is cluster");
            Mode::Sentinel
        }
        (Some("cluster"), false) => Mode::Cluster,
        (Some(_), _) => {
            properties.refuse("redisType", "must be node, sentinel or cluster");
            of_failover
        }
    }
}

fn refuse_unsupported(properties: &mut Properties, is_sentinel: bool) {
    for key in FOR_SENTINEL {
        if properties.text(key).is_some() && !is_sentinel {
            properties.refuse(key, "is for Sentinel; set failover: true, or remove it");
        }
    }
    for key in UNSUPPORTED_FLAGS {
        if properties.flag(key, false) {
            properties.refuse(key, "is not supported; use redisUsername and redisPassword");
        }
    }
    for key in WITHOUT_EFFECT.into_iter().chain(OIDC) {
        properties.ignore(key);
    }
}

fn read_credentials(
    properties: &mut Properties,
    username: &'static str,
    password: &'static str,
) -> Credentials {
    let read = Credentials {
        username: properties.text(username),
        password: properties.text(password),
    };
    if read.username.is_some() && read.password.is_none() {
        properties.refuse(password, format!("is missing, though {username} is set"));
    }
    read
}

/// The certificates of TLS, `Some(None)` without TLS. `None` if a property was refused.
fn read_certificates(
    properties: &mut Properties,
    certificate: Option<String>,
    key: Option<String>,
    tls: bool,
) -> Option<Option<TlsCertificates>> {
    let client_tls = match (certificate, key) {
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
    if client_tls.is_some() && !tls {
        properties.refuse("enableTLS", "must be true for clientCert and clientKey to be used");
        return None;
    }
    Some(tls.then_some(TlsCertificates { client_tls, root_cert: None }))
}

fn settings(credentials: Credentials) -> RedisConnectionInfo {
    // The client does not send its library's name: servers before 7.2 do not know the command,
    // and users would need another permission.
    let mut settings = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    if let Some(username) = credentials.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = credentials.password {
        settings = settings.set_password(password);
    }
    settings
}

fn client(
    address: ConnectionAddr,
    settings: RedisConnectionInfo,
    certificates: Option<&TlsCertificates>,
) -> Result<Client, RedisError> {
    let info: ConnectionInfo = address
        .into_connection_info()?
        .set_tcp_settings(tcp_settings())
        .set_redis_settings(settings);
    match certificates {
        Some(certificates) => Client::build_with_tls(info, certificates.clone()),
        None => Client::open(info),
    }
}

fn tcp_settings() -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(UNACKNOWLEDGED_MAX);
    settings
}

#[cfg(test)]
mod tests;
