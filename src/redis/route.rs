//! The way to the master: a fixed address, or what Sentinels say.

use std::{future::pending, time::Duration};

use ::redis::{Client, ConnectionAddr};
use tokio::time::sleep;

use super::{
    config::Servers,
    sentinel::{Sentinels, Unresolved},
};

/// How long to wait before Sentinels are asked again that did not agree or did not answer.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The way to the master.
pub(super) enum Route {
    /// It is always at this address.
    Fixed(Client),
    /// Sentinels name it.
    Sentinels(Sentinels),
}

/// A server that was the master when that was asked.
#[derive(Clone)]
pub(super) struct Master {
    /// How to connect to it.
    pub(super) client: Client,
    /// How many notices of Sentinels had come before they were asked.
    pub(super) notices: u64,
}

impl Route {
    pub(super) fn new(servers: Servers) -> Self {
        match servers {
            Servers::Node(client) => Self::Fixed(client),
            Servers::Sentinel(setup) => Self::Sentinels(Sentinels::new(setup)),
        }
    }

    /// Whether Sentinels name the master.
    pub(super) fn has_sentinels(&self) -> bool {
        matches!(self, Self::Sentinels(_))
    }

    /// The master, as far as is known now.
    pub(super) async fn master(&self) -> Result<Master, Unresolved> {
        match self {
            Self::Fixed(client) => Ok(Master { client: client.clone(), notices: 0 }),
            Self::Sentinels(sentinels) => sentinels.master().await,
        }
    }

    /// Returns once another server than this is known to be the master.
    pub(super) async fn moved_from(&self, master: &Master) {
        let Self::Sentinels(sentinels) = self else { return pending().await };
        let mut seen = master.notices;
        loop {
            sentinels.noticed(seen).await;
            match sentinels.master().await {
                Ok(now) if !now.is_same_as(master) => return,
                Ok(now) => seen = now.notices,
                Err(_) => sleep(ASK_AGAIN).await,
            }
        }
    }

    /// Follows what the Sentinels publish, until this is dropped.
    pub(super) async fn follow(&self) {
        if let Self::Sentinels(sentinels) = self {
            sentinels.follow().await;
        }
    }
}

impl Master {
    /// Its address.
    pub(super) fn address(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }

    /// Whether both are at the same address.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}
