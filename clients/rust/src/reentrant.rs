//! Which locks the running task holds, for those that may be taken again.

use std::sync::Arc;

use crate::{Error, Lock, Locks, error::Failure, lock::Owner, options::Options};

tokio::task_local! {
    static INNERMOST: Option<Arc<Node>>;
}

/// A lock that the work may take again.
pub(crate) struct Owned {
    pub(crate) locks: Locks,
    pub(crate) owner: Owner,
}

struct Node {
    owned: Owned,
    outer: Option<Arc<Node>>,
}

fn innermost() -> Option<Arc<Node>> {
    INNERMOST.try_with(Clone::clone).ok().flatten()
}

/// Runs `work` as the owner of one more lock.
pub(crate) async fn scope<F: Future>(owned: Option<Owned>, work: F) -> F::Output {
    let outer = innermost();
    let node = match owned {
        Some(owned) => Some(Arc::new(Node { owned, outer })),
        None => outer,
    };
    INNERMOST.scope(node, work).await
}

/// Another handle of the same lock, if this task holds it.
pub(crate) fn find(locks: &Locks, options: &Options) -> Result<Option<Lock>, Error> {
    let mut next = innermost();
    while let Some(node) = next {
        let held = &node.owned.owner.held;
        let same = node.owned.locks.is(locks)
            && held.grant.resource == options.resource
            && held.grant.namespace == options.namespace;
        if same {
            if held.end().is_none() && held.grant.mode != options.mode {
                return Err(Failure::option(
                    "mode",
                    "is not the one in which the lock is held",
                ));
            }
            if let Some(lock) = node.owned.owner.join() {
                return Ok(Some(lock));
            }
            // One that the work has unlocked is not held any more, and is taken again.
            if let Some(Err(lost)) = held.end() {
                return Err(Error::LockLost(lost));
            }
        }
        next = node.outer.clone();
    }
    Ok(None)
}
