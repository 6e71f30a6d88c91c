//! Which locks the running task holds, for those that may be taken again.

use std::sync::Arc;

use crate::{Error, Locks, error::Failure, held::Held, options::Options};

tokio::task_local! {
    static INNERMOST: Option<Arc<Node>>;
}

/// A lock that the work may take again.
pub(crate) struct Owned {
    pub(crate) locks: Locks,
    pub(crate) held: Arc<Held>,
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

/// The same lock, if this task holds it.
pub(crate) fn find(locks: &Locks, options: &Options) -> Result<Option<Arc<Held>>, Error> {
    let mut next = innermost();
    while let Some(node) = next {
        let Owned { locks: owner, held } = &node.owned;
        let same = owner.is(locks)
            && held.resource == options.resource
            && held.namespace == options.namespace;
        if same && let Some(lost) = held.lost() {
            return Err(Error::LockLost(lost));
        }
        // One that the work has unlocked is not held any more, and is taken anew.
        if same && held.valid_for().is_ok() {
            if held.mode != options.mode {
                return Err(Failure::option("mode", "the lock is held in another mode"));
            }
            return Ok(Some(held.clone()));
        }
        next = node.outer.clone();
    }
    Ok(None)
}
