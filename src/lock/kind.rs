//! What a kind of backend is, and how a store is opened on it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tracing::warn;

use crate::{
    Backend, Clock, Feature, LockError, Settings, Store, Violation,
    observe::{Observe, Unobserved},
    properties::{Properties, nearest},
};

/// A backend that can be opened from a component's properties.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Its name: `redis` is the component type `lock.redis`.
    pub name: &'static str,
    /// Reads its own properties, with the methods of [`Properties`], and returns how to connect
    /// with them. Those that all stores have were read before and come in
    /// [`Context::settings`]. It must not connect by
    /// itself. A mistake is recorded in [`Properties`] and does not end the reading, so that
    /// all are reported at once. After a mistake the function continues with any value and
    /// returns a [`Connect`] that is never called.
    pub read: fn(&mut Properties) -> Connect,
    /// Whether it commits the writes of many callers as a group, and so answers them at
    /// the same time. The component's server then lets the responses share a flush;
    /// otherwise it flushes each response at once.
    pub commits_groups: bool,
    /// What every store of this kind has. Some may have more: see [`Backend::features`].
    pub features: &'static [Feature],
    /// How a URL names a store of this kind; `None` if only its own process can see its locks.
    pub url: Option<UrlForm>,
}

/// How a URL names a store: `SCHEME://USER@HOSTS/PATH?PROPERTY=VALUE`.
#[derive(Clone, Copy, Debug)]
pub struct UrlForm {
    /// Its schemes, each with the properties that it implies.
    pub schemes: &'static [(&'static str, &'static [(&'static str, &'static str)])],
    /// The property that takes the hosts.
    pub hosts: &'static str,
    /// The property that takes the path.
    pub path: &'static str,
    /// Whether the leading slash belongs to the value of [`path`](Self::path).
    pub path_has_slash: bool,
    /// The property that takes the user.
    pub username: &'static str,
    /// The property of that user's password, which comes from elsewhere.
    pub password: &'static str,
    /// All properties that are secret, and so have no place in a URL.
    pub secrets: &'static [&'static str],
    /// Properties in PEM: `@FILE` stands for the content of a file.
    pub pem: &'static [&'static str],
    /// Properties that a server refuses because of credentials or permissions.
    pub refused: &'static [&'static str],
}

/// Connects a backend whose properties have been read.
pub type Connect =
    Box<dyn FnOnce(Context) -> BoxFuture<'static, Result<Arc<dyn Backend>, OpenError>> + Send>;

/// The context of a backend, besides its own properties.
#[derive(Clone)]
pub struct Context {
    /// The limits that all backends share.
    pub settings: Settings,
    /// The wall clock.
    pub clock: Clock,
    /// The backend of the store that this one replaces under its name, if there is one. A
    /// backend that keeps its locks in its own memory takes them over from it, once it has cast
    /// it to `dyn Any` and downcast that to its own type.
    pub before: Option<Arc<dyn Backend>>,
    /// To be notified when the backend connects again.
    pub observer: Arc<dyn Observe>,
}

impl Context {
    /// The context of a store that replaces none, and that nobody observes.
    #[must_use]
    pub fn new(settings: Settings, clock: Clock) -> Self {
        Self { settings, clock, before: None, observer: Unobserved::store() }
    }
}

/// Why a backend could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The server refused properties, such as credentials or a database number. Names them.
    #[error("{0:?}")]
    Refused(Vec<Violation>),
    /// The server could not be reached.
    #[error("{0}")]
    Unavailable(Arc<str>),
}

/// The kinds of backends of a build.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// Those that it has.
    pub built_in: &'static [Kind],
    /// The names of those that a build may leave out. Each is a cargo feature of that name.
    pub features: &'static [&'static str],
}

impl Kinds {
    /// The one of this name.
    #[must_use]
    pub fn named(self, name: &str) -> Option<Kind> {
        self.built_in.iter().copied().find(|kind| kind.name == name)
    }

    /// The error for a type `lock.NAME` that this build was made without.
    #[must_use]
    pub fn left_out(self, name: &str) -> Option<String> {
        let is_left_out = self.features.contains(&name) && self.named(name).is_none();
        is_left_out.then(|| {
            format!(
                "lock.{name} is not in this build of leasehold; build it with the cargo feature \
                 {name:?}"
            )
        })
    }

    /// The error for a type `lock.NAME` that is not built in and that no pluggable component
    /// serves. Lists the built-in types, and suggests a similar one.
    #[must_use]
    pub fn unknown(self, name: &str) -> String {
        if let Some(left_out) = self.left_out(name) {
            return left_out;
        }
        let names = self.built_in.iter().map(|kind| kind.name);
        let known: Vec<_> = names.clone().map(|name| format!("lock.{name}")).collect();
        let meant = nearest(name, names).map(|name| format!("; did you mean lock.{name}?"));
        format!(
            "lock.{name} is no built-in type, which are {}{}",
            known.join(", "),
            meant.unwrap_or_default()
        )
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kind").field(&self.name).finish()
    }
}

impl Kind {
    /// Reads a component's metadata items without connecting, and returns the limits that its
    /// store would have. [`LockError::InvalidMetadata`] lists every mistake.
    pub fn check(
        self,
        items: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Settings, LockError> {
        self.read(items).map(|(settings, ..)| settings)
    }

    /// Opens a store with a component's metadata items, and logs which of them have no effect. A bad property is
    /// [`LockError::InvalidMetadata`], an unreachable server
    /// [`LockError::StoreUnavailable`]; nothing is left behind by either. `before` is
    /// the store that this one is to replace, see [`Context::before`].
    pub async fn open(
        self,
        items: impl IntoIterator<Item = (String, String)>,
        clock: Clock,
        before: Option<&Store>,
    ) -> Result<Store, LockError> {
        self.open_observed(items, clock, before, Unobserved::store()).await
    }

    /// Like [`Kind::open`], with an observer of the store.
    pub async fn open_observed(
        self,
        items: impl IntoIterator<Item = (String, String)>,
        clock: Clock,
        before: Option<&Store>,
        observer: Arc<dyn Observe>,
    ) -> Result<Store, LockError> {
        let (settings, connect, warnings) = self.read(items)?;
        self.warn(&warnings);
        let context = Context {
            settings: settings.clone(),
            clock,
            before: before.map(Store::backend),
            observer: Arc::clone(&observer),
        };
        let backend = connect(context).await.map_err(|error| match error {
            OpenError::Refused(violations) => LockError::InvalidMetadata(violations),
            OpenError::Unavailable(why) => LockError::StoreUnavailable(why),
        })?;
        Ok(Store::observed(backend, settings, observer))
    }

    fn read(
        self,
        items: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(Settings, Connect, Vec<String>), LockError> {
        let mut properties = Properties::new(items);
        let settings = properties.settings();
        let connect = (self.read)(&mut properties);
        let warnings = properties.warnings();
        properties.finish().map_err(|violations| {
            // A misspelt key may be the one that is missing.
            self.warn(&warnings);
            LockError::InvalidMetadata(violations)
        })?;
        Ok((settings, connect, warnings))
    }

    fn warn(self, warnings: &[String]) {
        for warning in warnings {
            warn!(store = self.name, "{warning}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_was_left_out_is_an_error_that_names_its_feature() {
        let kinds = Kinds { built_in: &[], features: &["etcd"] };
        assert!(kinds.unknown("etcd").contains("the cargo feature \"etcd\""));
        assert_eq!(kinds.left_out("redis"), None);
    }
}
