//! Adapters of the port: what keeps the locks.
//!
//! [`KINDS`] is the one place that knows which there are.

pub(crate) mod etcd;
pub mod memory;
pub mod pluggable;
pub(crate) mod redis;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tracing::warn;

use crate::{
    lock::{Backend, Clock, Feature, LockError, Settings, Store, Violation},
    properties::{Properties, nearest},
};

/// Every backend there is. To add one, add its [`Kind`] here.
pub const KINDS: &[Kind] = &[etcd::KIND, memory::KIND, redis::KIND];

/// A backend that can be opened from a component's properties.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name: `redis` is the component type `lock.redis`.
    pub name: &'static str,
    /// Reads its own properties and returns how to connect with them. A mistake is noted in
    /// [`Properties`] and does not end the reading, so that all are told at once: the
    /// function then goes on with any value and returns a [`Connect`], which is never
    /// called. It must not connect by itself.
    pub read: fn(&mut Properties) -> Connect,
    /// Whether it commits the writes of many callers as a group, and so answers them at
    /// the same time. The component's server then lets the responses share a flush;
    /// otherwise it flushes each response at once.
    pub commits_groups: bool,
    /// What every store of this kind can do: what its [`Backend::features`]
    /// returns.
    pub features: &'static [Feature],
}

/// Connects a backend whose properties have been read.
pub type Connect =
    Box<dyn FnOnce(Context) -> BoxFuture<'static, Result<Arc<dyn Backend>, OpenError>> + Send>;

/// What a backend is given besides its own properties.
#[derive(Clone)]
pub struct Context {
    /// The limits that all backends share.
    pub settings: Settings,
    /// The wall clock.
    pub clock: Clock,
    /// The backend of the store that this one replaces under its name, if there is one. A
    /// backend that keeps its locks in its own memory takes them over from it.
    pub before: Option<Arc<dyn Backend>>,
}

impl Context {
    /// For a store that replaces none.
    #[must_use]
    pub fn new(settings: Settings, clock: Clock) -> Self {
        Self { settings, clock, before: None }
    }
}

/// Why a backend could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The server refused what the properties say (credentials, a database
    /// number): they are named.
    #[error("{0:?}")]
    Refused(Vec<Violation>),
    /// The server was not reached.
    #[error("{0}")]
    Unavailable(Arc<str>),
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kind").field(&self.name).finish()
    }
}

/// What to say of `lock.NAME` where no pluggable component serves it: which
/// types there are, the nearest first if one is near.
pub(crate) fn unknown_type(name: &str) -> String {
    let known: Vec<_> = KINDS.iter().map(|kind| format!("lock.{}", kind.name)).collect();
    let names = KINDS.iter().map(|kind| kind.name);
    let meant = nearest(name, names).map(|name| format!("; did you mean lock.{name}?"));
    format!(
        "lock.{name} is no built-in type, which are {}{}",
        known.join(", "),
        meant.unwrap_or_default()
    )
}

impl Kind {
    /// The kind of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KINDS.iter().copied().find(|kind| kind.name == name)
    }

    /// Reads a component's metadata items without connecting, for the limits that
    /// its store would have. Every mistake is told, as
    /// [`LockError::InvalidMetadata`].
    pub fn check(
        self,
        items: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Settings, LockError> {
        self.read(items).map(|(settings, _)| settings)
    }

    /// Opens a store with a component's metadata items. A bad property is
    /// [`LockError::InvalidMetadata`], an unreachable server
    /// [`LockError::StoreUnavailable`]; nothing is left behind by either. `before` is
    /// the store that this one is to replace, see [`Context::before`].
    pub async fn open(
        self,
        items: impl IntoIterator<Item = (String, String)>,
        clock: Clock,
        before: Option<&Store>,
    ) -> Result<Store, LockError> {
        let (settings, connect) = self.read(items)?;
        let before = before.map(Store::backend);
        let context = Context { settings: settings.clone(), clock, before };
        let backend = connect(context).await.map_err(|error| match error {
            OpenError::Refused(violations) => LockError::InvalidMetadata(violations),
            OpenError::Unavailable(why) => LockError::StoreUnavailable(why),
        })?;
        Ok(Store::new(backend, settings))
    }

    fn read(
        self,
        items: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(Settings, Connect), LockError> {
        let mut properties = Properties::new(items);
        let settings = properties.settings();
        let connect = (self.read)(&mut properties);
        for warning in properties.warnings() {
            warn!(store = self.name, "{warning}");
        }
        properties.finish().map_err(LockError::InvalidMetadata)?;
        Ok((settings, connect))
    }
}
