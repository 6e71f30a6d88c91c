//! The options of a front.

use std::{
    env::{self, VarError},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use leasehold_metrics::MetricsArgs;
use tokio_rustls::TlsAcceptor;

use super::{password::Password, tls};

/// The default address.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6390);
/// The environment variable of the password.
const PASSWORD_VARIABLE: &str = "LEASEHOLD_REDIS_FRONT_PASSWORD";

/// The options of `redis-front`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  leasehold redis-front --store lockstore --resources-path ./my-components
      the store \"lockstore\", for clients of Redis at 127.0.0.1:6390
  LEASEHOLD_REDIS_FRONT_PASSWORD=… leasehold redis-front --store lockstore \\
      --resources-path ./my-components --listen 0.0.0.0:6390 \\
      --tls-cert tls.crt --tls-key tls.key
      the same for other machines

daprd needs this component, and nothing else:
  type: lock.redis
  metadata: [{name: redisHost, value: \"127.0.0.1:6390\"}]

Environment:
  LEASEHOLD_REDIS_FRONT_PASSWORD   what clients must send with AUTH or HELLO

Exit status: 0 after a drained stop, 64 for a wrong command line or
configuration, 1 for anything else (a port in use, for one).")]
pub struct FrontArgs {
    /// The lock store: the name of its component
    #[arg(long, value_name = "NAME")]
    pub store: String,

    /// A folder of component YAML; may be repeated
    #[arg(long, value_name = "DIR", required = true)]
    pub resources_path: Vec<PathBuf>,

    /// The address to listen on; 127.0.0.1:6390 unless there is a --unix-socket
    #[arg(long, value_name = "ADDRESS", value_parser = read_address)]
    pub listen: Option<SocketAddr>,

    /// A Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    pub unix_socket: Option<PathBuf>,

    /// A file whose first line is the password
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,

    /// Speak TLS, with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Only clients with a certificate of this authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,

    /// Let DEL and UNLINK end the lock of any holder
    #[arg(long)]
    pub allow_delete: bool,

    /// Metrics and probes.
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

fn read_address(text: &str) -> Result<SocketAddr, String> {
    let help =
        format!("an IP address or localhost is needed, and a port, as in {DEFAULT_ADDRESS}");
    let port = text.strip_prefix("localhost:");
    let address = port.map(|port| format!("{}:{port}", DEFAULT_ADDRESS.ip()));
    address.as_deref().unwrap_or(text).parse().map_err(|_| help)
}

/// The checked options of a front.
#[derive(Clone)]
pub struct FrontOptions {
    /// The name of the store.
    pub store: String,
    /// The port, if there is one.
    pub listen: Option<SocketAddr>,
    /// The Unix socket, if there is one.
    pub unix_socket: Option<PathBuf>,
    /// What clients must send first.
    pub password: Option<Password>,
    /// TLS on the port.
    pub tls: Option<TlsAcceptor>,
    /// Whether `DEL` and `UNLINK` end the lock of any holder.
    pub allow_delete: bool,
}

impl FrontArgs {
    /// Reads the files that the options name.
    ///
    /// # Errors
    ///
    /// The problem, with the option to change.
    pub fn options(&self) -> Result<FrontOptions, String> {
        let args = self.clone();
        let listen = args.listen.or(args.unix_socket.is_none().then_some(DEFAULT_ADDRESS));
        let files = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
        if files.is_some() && listen.is_none() {
            return Err("--tls-cert is for a port, and there is only a socket: give --listen"
                .to_owned());
        }
        let password = password(args.password_file)?;
        let is_local = |address: SocketAddr| address.ip().to_canonical().is_loopback();
        if let Some(address) = listen.filter(|address| !is_local(*address))
            && password.is_none()
        {
            return Err(format!(
                "--listen: other machines can reach {address}, so a front there needs a \
                 password; set {PASSWORD_VARIABLE} or --password-file"
            ));
        }
        Ok(FrontOptions {
            store: args.store,
            listen,
            unix_socket: args.unix_socket,
            password,
            tls: files
                .map(|(cert, key)| tls::acceptor(cert, key, args.tls_client_ca.as_deref()))
                .transpose()?,
            allow_delete: args.allow_delete,
        })
    }
}

fn password(file: Option<PathBuf>) -> Result<Option<Password>, String> {
    let Some(file) = file else {
        return match env::var(PASSWORD_VARIABLE) {
            Ok(password) if password.is_empty() => Err(format!(
                "{PASSWORD_VARIABLE} is empty; set it to the password, or unset it"
            )),
            Ok(password) => Ok(Password::new(&password)),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => Err(format!("{PASSWORD_VARIABLE} is not UTF-8")),
        };
    };
    let read = Password::read(&file).map(Some);
    read.map_err(|why| format!("--password-file {}: {why}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_is_an_address() {
        assert_eq!(read_address("localhost:6390"), Ok(DEFAULT_ADDRESS));
        assert!(read_address("front.example:6390").is_err());
    }
}
