//! Why a command could not start.

use leasehold_component::{ServeError, SocketError};
use leasehold_manifest::{LoadError, PropertyError, WatchError};
use leasehold_net::listener::ListenError;
use leasehold_sidecar::{UsageError, loader::LoadStoreError};

/// Why a command could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The command line or the component YAML is wrong.
    #[error("{0}")]
    Configuration(String),
    /// A port, a socket or a backend is not available.
    #[error("{0}")]
    Unavailable(String),
}

macro_rules! from {
    ($($error:ty => $kind:ident),* $(,)?) => {
        $(impl From<$error> for StartError {
            fn from(error: $error) -> Self {
                Self::$kind(error.to_string())
            }
        })*
    };
}

from! {
    LoadError => Configuration,
    PropertyError => Configuration,
    WatchError => Configuration,
    UsageError => Configuration,
    SocketError => Unavailable,
    ServeError => Unavailable,
    ListenError => Unavailable,
}

impl From<LoadStoreError> for StartError {
    fn from(error: LoadStoreError) -> Self {
        if error.may_pass() {
            Self::Unavailable(error.to_string())
        } else {
            Self::Configuration(error.to_string())
        }
    }
}
