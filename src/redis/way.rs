//! The way of one call to the server that has its resource.

use std::{sync::Arc, time::Duration};

use ::redis::RedisError;
use leasehold_lock::BackendError;
use tokio::time::Instant;

use super::{
    cluster::{Cluster, Node},
    errors::{describe, is_not_master, is_temporary, may_be_partial},
    keys::Slot,
    link::{Link, Post},
    session::Session,
    view::Address,
};

/// How long a redirection is followed to a node that cannot be reached.
const REDIRECTION_MAX: Duration = Duration::from_secs(1);
/// How often in a row a call is redirected before it pauses.
const REDIRECTIONS_MAX: u32 = 4;

/// The way of one call.
pub(super) enum Way {
    /// To the one server.
    One(Arc<Link>),
    /// To the node of a Cluster that has the slot.
    Through(Through),
}

/// What follows on a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The call is sent again at once.
    Now,
    /// It is sent again after a pause.
    Later,
    /// It has failed.
    Never,
}

/// The way to the node of a Cluster that has a slot.
///
/// A call whose connection to a node was lost may still be carried out there. It is sent to
/// another node only when a later connection to the first has answered it, because that has ended
/// the earlier one, or when another has taken the slot with a greater epoch, because then the
/// first is no longer believed.
pub(super) struct Through {
    cluster: Arc<Cluster>,
    slot: Slot,
    node: Option<Arc<Node>>,
    /// The epoch of the owner when this way was chosen.
    epoch: u64,
    redirection: Option<Redirection>,
    /// Whether a call was lost there.
    is_bound: bool,
    redirections: u32,
    /// Whether the slot was found between two nodes.
    is_open: bool,
}

/// A node that another has named.
struct Redirection {
    until: Instant,
    /// Whether the target must be asked with ASKING.
    is_asking: bool,
    post: Post,
}

impl Way {
    /// The way to the node that has this slot.
    pub(super) fn through(cluster: Arc<Cluster>, slot: Slot) -> Self {
        Self::Through(Through {
            cluster,
            slot,
            node: None,
            epoch: 0,
            redirection: None,
            is_bound: false,
            redirections: 0,
            is_open: false,
        })
    }

    /// The connection to use, if there is one until then.
    pub(super) async fn session(&mut self, until: Instant) -> Option<Arc<Session>> {
        match self {
            Self::One(link) => link.session(until).await,
            Self::Through(through) => through.session(until).await,
        }
    }

    /// The link that it leads to.
    pub(super) fn link(&self) -> Option<Arc<Link>> {
        match self {
            Self::One(link) => Some(Arc::clone(link)),
            Self::Through(through) => through.node.as_ref().map(|node| Arc::clone(&node.link)),
        }
    }

    /// Whether the server has the slot only for those who ask for it.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self, Self::Through(Through { redirection: Some(to), .. }) if to.is_asking)
    }

    /// Whether an answer of that server is believed.
    pub(super) fn holds(&self) -> bool {
        match self {
            Self::One(_) => true,
            Self::Through(through) => !through.is_superseded(),
        }
    }

    /// Where notices about the resource are received, if this connection has answered a call.
    pub(super) fn post(&self, session: &Session) -> Post {
        match self {
            Self::Through(Through { redirection: Some(to), .. }) => to.post,
            _ => Some(session.number),
        }
    }

    /// Records that the connection was lost during a call.
    pub(super) fn lost(&mut self) {
        if let Self::Through(through) = self {
            through.is_bound = true;
            through.cluster.ask_again();
        }
    }

    /// Records that the server has refused a call.
    pub(super) fn refused(&mut self, session: &Session, error: &RedisError) -> Next {
        match self {
            Self::One(link) => {
                let is_not_master = is_not_master(error);
                if is_not_master {
                    // The address may lead to the new master by now.
                    link.give_up(session, describe(error));
                }
                if is_not_master || is_temporary(error) { Next::Later } else { Next::Never }
            }
            Self::Through(through) => through.refused(session, error),
        }
    }

    /// Whether the slot was found between two nodes.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Through(Through { is_open: true, .. }))
    }

    /// Why there is no connection.
    pub(super) fn down(&self) -> Arc<str> {
        match self {
            Self::Through(Through { node: None, slot, .. }) => {
                format!("no node of the Cluster has slot {}", slot.0).into()
            }
            Self::Through(Through { node: Some(node), .. }) => {
                format!("{} at {}", node.link.down(), node.address()).into()
            }
            Self::One(link) => link.down(),
        }
    }

    /// Names the slot, if that is the reason for this error.
    pub(super) fn explain(&self, error: BackendError) -> BackendError {
        match (self, error) {
            (
                Self::Through(Through { slot, is_open: true, .. }),
                BackendError::Unavailable(why),
            ) => BackendError::Unavailable(
                format!(
                    "slot {} is being moved between two nodes of the Cluster, or was left open: \
                     {why}",
                    slot.0
                )
                .into(),
            ),
            (_, error) => error,
        }
    }
}

impl Through {
    async fn session(&mut self, until: Instant) -> Option<Arc<Session>> {
        let mut tables = self.cluster.tables();
        loop {
            tables.mark_unchanged();
            if (self.is_bound || self.redirection.is_some()) && self.is_superseded() {
                self.is_bound = false;
                self.redirection = None;
            }
            if !self.is_bound && self.redirection.is_none() {
                (self.node, self.epoch) = self.cluster.owner_of(self.slot);
            }
            let redirected_until = self.redirection.as_ref().map(|to| to.until);
            let limit = redirected_until.filter(|_| !self.is_bound).unwrap_or(until).min(until);
            let session = async {
                match &self.node {
                    Some(node) => node.link.session(limit).await,
                    None => {
                        self.cluster.ask_again();
                        tokio::time::sleep_until(limit).await;
                        None
                    }
                }
            };
            tokio::select! {
                biased;
                session = session => {
                    if session.is_some() || limit == until {
                        return session;
                    }
                    self.redirection = None;
                    self.cluster.ask_again();
                }
                _ = tables.changed() => {}
            }
        }
    }

    /// Whether another node is known to have taken the slot since this way was chosen.
    fn is_superseded(&self) -> bool {
        let tables = self.cluster.tables();
        let table = tables.borrow();
        let Some((owner, node)) = table.owner(self.slot).zip(self.node.as_ref()) else {
            return false;
        };
        owner.node != *node.address() && owner.epoch > self.epoch
    }

    fn refused(&mut self, session: &Session, error: &RedisError) -> Next {
        // The earlier connections to this node were ended before this one was used.
        self.is_bound = false;
        self.redirection = None;
        match error.code() {
            Some("MOVED") => {
                self.cluster.ask_again();
                self.redirect(error, false)
            }
            Some("ASK") => {
                self.is_open = true;
                self.redirect(error, true)
            }
            Some("TRYAGAIN") => {
                self.is_open = true;
                Next::Later
            }
            Some("CLUSTERDOWN") => {
                self.cluster.ask_again();
                Next::Later
            }
            _ if is_not_master(error) => {
                if let Some(node) = &self.node {
                    node.link.give_up(session, describe(error));
                }
                self.cluster.ask_again();
                Next::Later
            }
            _ if is_temporary(error) || may_be_partial(error) => Next::Later,
            _ => Next::Never,
        }
    }

    fn redirect(&mut self, error: &RedisError, is_asking: bool) -> Next {
        let to = self.node.as_ref().and_then(|from| {
            let (address, _) = error.redirect_node()?;
            Address::read(address, &from.address().host)
        });
        let (owner, _) = self.cluster.owner_of(self.slot);
        let Some(node) = to.and_then(|to| self.cluster.named(to)) else { return Next::Later };
        let post = owner.and_then(|owner| owner.link.number());
        self.redirection =
            Some(Redirection { until: Instant::now() + REDIRECTION_MAX, is_asking, post });
        // The epoch stays: who has taken the slot since then is believed rather than this node.
        self.node = Some(node);
        self.redirections += 1;
        if self.redirections.is_multiple_of(REDIRECTIONS_MAX) { Next::Later } else { Next::Now }
    }
}
