//! The way to the master: a fixed address, what Sentinels say, or a node of a Cluster.

use std::{future::pending, sync::Arc, time::Duration};

use ::redis::Client;
use leasehold_util::retry::Backoff;

use super::{
    master::Master,
    member::Member,
    sentinel::{Sentinels, Unresolved},
};

/// How long to wait before Sentinels are asked again that did not agree or did not answer.
const ASK_AGAIN_MIN: Duration = Duration::from_millis(200);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(2);

/// The way to the master.
pub(super) enum Route {
    /// It is always at this address.
    Fixed(Client),
    /// Sentinels name it.
    Sentinels(Sentinels),
    /// It is one of several.
    Member(Arc<Member>),
}

impl Route {
    /// Whether Sentinels name the master.
    pub(super) fn has_sentinels(&self) -> bool {
        matches!(self, Self::Sentinels(_))
    }

    /// The master, as far as is known now.
    pub(super) async fn master(&self) -> Result<Master, Unresolved> {
        match self {
            Self::Fixed(client) => Ok(Master::alone(client)),
            Self::Sentinels(sentinels) => sentinels.master().await,
            Self::Member(member) => {
                member.needed(true).await;
                Ok(member.master())
            }
        }
    }

    /// Returns once another server than this is to be used, and why.
    pub(super) async fn moved_from(&self, master: &Master) -> &'static str {
        let sentinels = match self {
            Self::Fixed(_) => return pending().await,
            Self::Member(member) => {
                member.needed(false).await;
                return "the node has no slot any more";
            }
            Self::Sentinels(sentinels) => sentinels,
        };
        let mut seen = master.notices;
        let mut backoff = Backoff::new(ASK_AGAIN_MIN, ASK_AGAIN_MAX);
        loop {
            sentinels.noticed(seen).await;
            match sentinels.master().await {
                Ok(now) if !now.is_same_as(master) => {
                    return "another server has become the master";
                }
                Ok(now) => {
                    seen = now.notices;
                    backoff = Backoff::new(ASK_AGAIN_MIN, ASK_AGAIN_MAX);
                }
                Err(_) => backoff.pause().await,
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
