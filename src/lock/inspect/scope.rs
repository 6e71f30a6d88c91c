//! The resources of a list, an end or a watch.

use std::{fmt, sync::Arc};

use crate::ResourceId;

/// Some of the resources of a store: those whose name begins with a prefix, and of these the
/// ones that a condition accepts.
#[derive(Clone)]
pub struct Scope {
    prefix: Arc<str>,
    /// The single resource, if it has no other.
    only: Option<ResourceId>,
    accepts: Arc<dyn Fn(&ResourceId) -> bool + Send + Sync>,
}

impl Scope {
    /// The resources whose name begins with `prefix`; all of them if it is empty.
    #[must_use]
    pub fn prefix(prefix: &str) -> Self {
        Self::of(prefix, |_| true)
    }

    /// The resources whose name begins with `prefix` and that `accepts` accepts.
    pub fn of(
        prefix: &str,
        accepts: impl Fn(&ResourceId) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { prefix: prefix.into(), only: None, accepts: Arc::new(accepts) }
    }

    /// This resource alone.
    #[must_use]
    pub fn resource(resource: ResourceId) -> Self {
        let only = resource.clone();
        let scope = Self::of(resource.as_str(), move |other| *other == only);
        Self { only: Some(resource), ..scope }
    }

    /// The single resource, if it has no other.
    pub(super) fn only(&self) -> Option<&ResourceId> {
        self.only.as_ref()
    }

    /// The prefix of its resources' names.
    pub(super) fn name_prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether the scope contains the resource.
    #[must_use]
    pub fn has(&self, resource: &ResourceId) -> bool {
        resource.as_str().starts_with(&*self.prefix) && (self.accepts)(resource)
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scope").field(&self.prefix).finish_non_exhaustive()
    }
}
