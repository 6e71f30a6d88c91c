//! The options of a front, on the command line of its own and of other commands.

use std::{
    env::{self, VarError},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use tokio_rustls::TlsAcceptor;

use super::{password::Password, tls};

/// Where a front listens unless the command line says otherwise.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6390);
/// The variable of the environment that has the password.
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
}

/// The options of a front in the process of another command.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct EmbeddedFrontArgs {
    /// Also serve this store to clients of Redis: see redis-front --help
    #[arg(long, value_name = "NAME")]
    pub redis_front: Option<String>,

    /// The front's address; 127.0.0.1:6390 unless it has a socket
    #[arg(long, value_name = "ADDRESS", requires = "redis_front", value_parser = read_address)]
    pub redis_front_listen: Option<SocketAddr>,

    /// The front's Unix socket
    #[arg(long, value_name = "PATH", requires = "redis_front")]
    pub redis_front_unix_socket: Option<PathBuf>,

    /// A file whose first line is the front's password
    #[arg(long, value_name = "FILE", requires = "redis_front")]
    pub redis_front_password_file: Option<PathBuf>,

    /// The front speaks TLS, with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["redis_front", "redis_front_tls_key"])]
    pub redis_front_tls_cert: Option<PathBuf>,

    /// The key of the front's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "redis_front_tls_cert")]
    pub redis_front_tls_key: Option<PathBuf>,

    /// The front takes only clients with a certificate of this authority (PEM)
    #[arg(long, value_name = "FILE", requires = "redis_front_tls_cert")]
    pub redis_front_tls_client_ca: Option<PathBuf>,

    /// Let DEL and UNLINK end the lock of any holder
    #[arg(long, requires = "redis_front")]
    pub redis_front_allow_delete: bool,
}

fn read_address(text: &str) -> Result<SocketAddr, String> {
    let help = format!("an IP address and a port are needed, as in {DEFAULT_ADDRESS}");
    text.parse().map_err(|_| help)
}

/// What a front is started with.
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
    /// How the options are named, for errors.
    pub(super) names: OptionNames,
}

/// The names of options, which depend on the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionNames {
    pub(super) listen: &'static str,
    pub(super) unix_socket: &'static str,
    pub(super) password_file: &'static str,
    pub(super) tls: &'static str,
}

const OWN_NAMES: OptionNames = OptionNames {
    listen: "--listen",
    unix_socket: "--unix-socket",
    password_file: "--password-file",
    tls: "--tls",
};
const EMBEDDED_NAMES: OptionNames = OptionNames {
    listen: "--redis-front-listen",
    unix_socket: "--redis-front-unix-socket",
    password_file: "--redis-front-password-file",
    tls: "--redis-front-tls",
};

impl FrontArgs {
    /// Reads the files that the options name.
    ///
    /// # Errors
    ///
    /// What is wrong, with the option to change.
    pub fn options(&self) -> Result<FrontOptions, String> {
        self.clone().read(OWN_NAMES)
    }

    fn read(self, names: OptionNames) -> Result<FrontOptions, String> {
        let listen = self.listen.or(self.unix_socket.is_none().then_some(DEFAULT_ADDRESS));
        let files = tls::Files::of(self.tls_cert, self.tls_key, self.tls_client_ca);
        if files.is_some() && listen.is_none() {
            let OptionNames { tls, listen, .. } = names;
            return Err(format!(
                "{tls}-cert is for a port, and there is only a socket: give {listen}"
            ));
        }
        let password = password(self.password_file, names)?;
        let is_local = |address: SocketAddr| address.ip().to_canonical().is_loopback();
        if let Some(address) = listen.filter(|address| !is_local(*address))
            && password.is_none()
        {
            let OptionNames { listen, password_file, .. } = names;
            return Err(format!(
                "{listen}: other machines can reach {address}, so a front there needs a \
                 password; set {PASSWORD_VARIABLE} or {password_file}"
            ));
        }
        Ok(FrontOptions {
            store: self.store,
            listen,
            unix_socket: self.unix_socket,
            password,
            tls: files.map(|files| files.acceptor(names.tls)).transpose()?,
            allow_delete: self.allow_delete,
            names,
        })
    }
}

impl EmbeddedFrontArgs {
    /// Reads the files that the options name; `None` if there is to be no front.
    ///
    /// # Errors
    ///
    /// What is wrong, with the option to change.
    pub fn options(&self) -> Result<Option<FrontOptions>, String> {
        let args = self.clone();
        let Some(store) = args.redis_front else { return Ok(None) };
        let own = FrontArgs {
            store,
            resources_path: Vec::new(),
            listen: args.redis_front_listen,
            unix_socket: args.redis_front_unix_socket,
            password_file: args.redis_front_password_file,
            tls_cert: args.redis_front_tls_cert,
            tls_key: args.redis_front_tls_key,
            tls_client_ca: args.redis_front_tls_client_ca,
            allow_delete: args.redis_front_allow_delete,
        };
        own.read(EMBEDDED_NAMES).map(Some)
    }
}

fn password(file: Option<PathBuf>, names: OptionNames) -> Result<Option<Password>, String> {
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
    read.map_err(|why| format!("{} {}: {why}", names.password_file, file.display()))
}
