//! What is locked, and where.

use std::{sync::Arc, time::Duration};

use leasehold_held::{LockStore, Resource};
use leasehold_lock::{AcquireRequest, Holder, LockError, Mode, ResourceId, check_text};
use leasehold_pluggable::SidecarStore;
use leasehold_sidecar::{
    identity::{Identity, Instance},
    name::{Namespace, ResourceName},
};
use leasehold_tools::ToolError;
use tokio::time::timeout;

use super::LockArgs;
use crate::command::Opened;

/// Longest label, as the API has it.
const LABEL_BYTES_MAX: usize = 128;

/// A resource in an opened store.
pub(super) struct Target {
    pub(super) resource: Resource,
    holder: Option<Holder>,
}

impl Target {
    /// Opens the store, which must be able to renew.
    pub(super) async fn open(args: &LockArgs, label: &str) -> Result<Self, ToolError> {
        // Names first: a store that is out of reach is tried again.
        check_text("label", label, LABEL_BYTES_MAX).map_err(LockError::from)?;
        let key = ResourceId::new(&args.options.resource).map_err(LockError::from)?;
        let namespace = Namespace::new(args.namespace.clone()).map_err(LockError::from)?;
        let name = ResourceName::new(&namespace, key.clone());
        let opened = args.store.open().await?;
        opened.check_namespace(&args.namespace)?;
        let (store, id, holder) = match opened {
            Opened::Own { store, app: None, .. } => (store, key, shown("", label)?),
            Opened::Own { store, app: Some(names), .. } => {
                let id = names.of(&name.map_err(LockError::from)?).map_err(LockError::from)?;
                let app = args.store.app_id.as_deref().unwrap_or_default();
                (store, id, shown(app, label)?)
            }
            Opened::OfSidecar { channel, name } => {
                let store = SidecarStore { channel, name, namespace: args.namespace.clone() };
                // The sidecar puts its own part before it.
                let holder = Holder::new(label).map_err(LockError::from)?;
                (store.open().await?, key, holder)
            }
        };
        let store = Arc::new(LockStore::third_party(args.store.store.as_str(), store));
        store.must_renew(&id).await?;
        Ok(Self { resource: Resource { lock_store: store, id }, holder })
    }

    /// Closes the store, so that nothing is left there of attempts that were given up, and no
    /// lease that is kept for reuse. Returns whether that was done `within` this time.
    pub(super) async fn close(self, within: Duration) -> bool {
        timeout(within, self.resource.store().clone().retire()).await.is_ok()
    }

    /// A request for it.
    pub(super) fn request(&self, args: &LockArgs) -> AcquireRequest {
        let mode = if args.options.shared { Mode::Shared } else { Mode::Exclusive };
        AcquireRequest {
            ttl: args.options.ttl,
            mode,
            holder: self.holder.clone(),
            ..AcquireRequest::new(self.resource.id.clone())
        }
    }
}

/// `APP/HOST/LABEL`, as a sidecar of the app shows it, or `HOST/LABEL` without an app.
fn shown(app: &str, label: &str) -> Result<Option<Holder>, LockError> {
    let instance = Instance::or_of_machine(None, None);
    if app.is_empty() {
        return Ok(Holder::new(&format!("{instance}/{label}"))?);
    }
    Ok(Identity::new(app, &instance).holder(label)?)
}
