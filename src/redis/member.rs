//! A node of a Cluster, as the connection to it needs to know it.

use std::{future::pending, sync::Arc};

use ::redis::Client;
use tokio::sync::watch;

use super::{keys::Slot, master::Master, table::SlotTable, view::Address};

/// A node that has slots, or is about to get some.
pub(super) struct Member {
    pub(super) address: Arc<Address>,
    client: Client,
    table: watch::Receiver<SlotTable>,
    is_needed: watch::Sender<bool>,
}

impl Member {
    pub(super) fn new(
        address: Arc<Address>,
        client: Client,
        table: watch::Receiver<SlotTable>,
    ) -> Self {
        Self { address, client, table, is_needed: watch::Sender::new(true) }
    }

    /// How to connect to it.
    pub(super) fn master(&self) -> Master {
        Master { client: self.client.clone(), notices: 0, in_cluster: true }
    }

    /// Whether the slot is this node's, as far as is known.
    pub(super) fn owns(&self, slot: Slot) -> bool {
        self.table.borrow().owner(slot).is_some_and(|owner| owner.node == self.address)
    }

    /// Sets whether calls may be sent to it.
    pub(super) fn set_needed(&self, is_needed: bool) {
        self.is_needed.send_if_modified(|now| std::mem::replace(now, is_needed) != is_needed);
    }

    /// Returns when this is so.
    pub(super) async fn needed(&self, is_needed: bool) {
        // It can only fail without a sender, which is in `self`.
        if self.is_needed.subscribe().wait_for(|now| *now == is_needed).await.is_err() {
            pending::<()>().await;
        }
    }
}
