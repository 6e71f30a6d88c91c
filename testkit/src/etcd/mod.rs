//! etcd servers, of each supported version.

mod cluster;
mod server;
mod tls;
mod version;

pub use cluster::EtcdCluster;
pub use server::{EtcdServer, MemberConfig};
pub use tls::Tls;
pub use version::Version;

/// How often servers are started again on other ports if one ends at once.
pub const STARTS_MAX: usize = 5;
