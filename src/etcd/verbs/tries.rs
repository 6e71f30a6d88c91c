//! What acquiring without a wait needs: `look` looks, `acquire` writes.

use std::sync::Arc;

use crate::{etcd::Etcd, grants::write::Writer, verbs::renew::Renewals};

/// Makes grants at once or not at all.
pub(crate) struct Tries {
    pub(crate) etcd: Arc<Etcd>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) renewals: Arc<Renewals>,
    /// How many shared grants a resource may have.
    pub(crate) holders_max: usize,
}
