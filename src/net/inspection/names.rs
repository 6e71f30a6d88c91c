//! The names by which callers know the resources of a store.

use leasehold_lock::{ResourceId, Violation, inspect::Scope};
use leasehold_proto::locks as pb;

/// The names by which callers know the resources of a store.
pub trait Names: Clone + Send + Sync + 'static {
    /// The store's name of a resource; the violation names `resource_id` or `namespace`.
    fn resource(&self, id: &str, namespace: Vec<String>) -> Result<ResourceId, Violation>;

    /// The resources of a scope; the violation names `namespace` or `prefix`.
    fn scope(&self, scope: pb::LockScope) -> Result<Scope, Violation>;

    /// The caller's name of a resource of a scope.
    fn read(&self, resource: &ResourceId) -> Named;
}

/// The caller's name of a resource.
#[derive(Debug, Default)]
pub struct Named {
    /// The ID, without a namespace.
    pub resource_id: String,
    /// The namespace, outermost segment first.
    pub namespace: Vec<String>,
}
