//! The store's own names.

use leasehold_lock::{ResourceId, Violation, inspect::Scope};
use leasehold_proto::locks as pb;

use super::{
    names::{Named, Names},
    requests::name_prefix,
};

/// The store's own names, which have no namespaces.
#[derive(Clone, Copy, Debug)]
pub struct OwnNames;

impl Names for OwnNames {
    fn resource(&self, id: &str, namespace: Vec<String>) -> Result<ResourceId, Violation> {
        must_be_empty(&namespace)?;
        ResourceId::new(id)
    }

    fn scope(&self, scope: pb::LockScope) -> Result<Scope, Violation> {
        must_be_empty(&scope.namespace)?;
        Ok(Scope::prefix(&name_prefix(scope.prefix)?))
    }

    fn read(&self, resource: &ResourceId) -> Named {
        Named { resource_id: resource.as_str().to_owned(), namespace: Vec::new() }
    }
}

fn must_be_empty(namespace: &[String]) -> Result<(), Violation> {
    if namespace.is_empty() {
        return Ok(());
    }
    Err(Violation::new(
        "namespace",
        "is for the names of an app; give the store's whole name as resource_id or prefix",
    ))
}
