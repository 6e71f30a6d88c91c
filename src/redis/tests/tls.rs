//! What servers that ask for TLS are started with.

use leasehold_testkit::etcd::Tls;

pub(crate) const INSECURE: [(&str, &str); 2] =
    [("enableTLS", "true"), ("insecureSkipTLSVerify", "true")];

/// A certificate in files, and the options of `redis-server` that name it.
pub(crate) struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        let (folder, tls) = (tempfile::tempdir().unwrap(), Tls::generate());
        for (name, text) in [("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self { folder }
    }

    /// The options of a server with this port for TLS beside its plain one.
    pub(crate) fn options(&self, port: u16) -> Vec<(&'static str, String)> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        vec![
            ("tls-port", port.to_string()),
            ("tls-cert-file", path("cert")),
            ("tls-key-file", path("key")),
            ("tls-ca-cert-file", path("ca")),
            ("tls-auth-clients", "no".into()),
            ("tls-replication", "yes".into()),
        ]
    }

    /// The same as arguments.
    pub(crate) fn arguments(&self, port: u16) -> Vec<String> {
        let options = self.options(port).into_iter();
        options.flat_map(|(name, value)| [format!("--{name}"), value]).collect()
    }
}
