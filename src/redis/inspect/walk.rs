//! A walk through the keys of all servers.
//!
//! In a Cluster it visits one node after another. What is held all the time must be found at least
//! once, though slots are moved meanwhile. Keys of an open slot move from its source to its target
//! only, so the sources are visited first, and then all nodes. If another node has a slot at the
//! end of the walk, or other slots are open, a second walk visits the nodes that may have got
//! some: those whose epochs are not smaller than the greatest at the beginning.

use std::{collections::BTreeSet, sync::Arc};

use leasehold_lock::{BackendError, ResourceId};
use tokio::time::Instant;

use super::super::{
    cluster::Cluster,
    keys::Keys,
    router::{Router, Servers},
    table::SlotTable,
    way::Way,
};

/// A position in the walk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Walk {
    /// The cursor of the SCAN.
    cursor: u64,
    /// The node, in a Cluster.
    at: Option<At>,
}

/// A node that is visited.
#[derive(Clone, Debug, PartialEq, Eq)]
struct At {
    node: Box<str>,
    /// Whether only the sources of open slots are visited yet.
    is_first: bool,
    /// Which nodes had which slots at the beginning.
    print: u64,
    /// The greatest epoch at the beginning.
    epoch: u64,
    /// The smallest epoch of the nodes to visit.
    least: u64,
}

impl Walk {
    /// A position that goes into a page token. It has no colon.
    pub(super) fn text(&self) -> String {
        match &self.at {
            None => self.cursor.to_string(),
            Some(At { node, is_first, print, epoch, least }) => {
                format!(
                    "{}.{node}.{}.{print}.{epoch}.{least}",
                    self.cursor,
                    u8::from(*is_first)
                )
            }
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let cursor = parts.next()?.parse().ok()?;
        let Some(node) = parts.next() else { return Some(Self { cursor, at: None }) };
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (is_first, print, epoch, least) = (number()? == 1, number()?, number()?, number()?);
        let node = node.into();
        Some(Self { cursor, at: Some(At { node, is_first, print, epoch, least }) })
    }

    /// The first position, if there is one, of a walk over nodes with at least this epoch.
    fn begin(table: &SlotTable, least: u64) -> Option<Self> {
        let (print, epoch) = table.print();
        let at = At { node: "".into(), is_first: true, print, epoch, least };
        at.next(table).map(|at| Self { cursor: 0, at: Some(at) })
    }
}

impl At {
    /// The node that is visited after this one.
    fn next(mut self, table: &SlotTable) -> Option<Self> {
        loop {
            let nodes = table.stops(self.is_first, self.least);
            if let Some(node) = nodes.into_iter().find(|node| **node > *self.node) {
                self.node = (&*node).into();
                return Some(self);
            }
            if !self.is_first {
                return None;
            }
            (self.is_first, self.node) = (false, "".into());
        }
    }
}

impl Router {
    /// Searches a part of the keys from this position for records of resources with this prefix.
    /// Returns where it ended; `None` if there are no more keys. Rarely it finds more than
    /// `most`.
    pub(super) async fn scan(
        &self,
        from: &Walk,
        prefix: &str,
        most: usize,
        until: Instant,
    ) -> Result<(Option<Walk>, BTreeSet<ResourceId>), BackendError> {
        let Servers::Cluster(cluster) = &self.servers else {
            let way = self.way(None);
            let scanned = self.scan_one(way, Keys::None, from.cursor, prefix, most, until);
            let (end, found) = scanned.await?;
            let next = (end != 0).then_some(Walk { cursor: end, at: None });
            return Ok((next, found));
        };
        let tables = cluster.tables();
        let first = || Walk::begin(&tables.borrow(), 0);
        let Some(Walk { cursor, at: Some(at) }) =
            Some(from.clone()).filter(|from| from.at.is_some()).or_else(first)
        else {
            return Err(BackendError::Unavailable("no node of the Cluster is known".into()));
        };
        let is_stop = tables.borrow().stops(false, 0).contains(&*at.node);
        let link = if is_stop { cluster.link_by_id(&at.node) } else { None };
        // One that has no slots any more, because it has gone or is a replica now, is left out.
        let (end, found) = match link {
            Some(link) => {
                let way = Way::One(link);
                self.scan_one(way, Keys::Nothing, cursor, prefix, most, until).await?
            }
            None => (0, BTreeSet::new()),
        };
        if end != 0 {
            return Ok((Some(Walk { cursor: end, at: Some(at) }), found));
        }
        Ok((after(cluster, at).await, found))
    }
}

/// Where the walk goes on after this node.
async fn after(cluster: &Arc<Cluster>, at: At) -> Option<Walk> {
    let tables = cluster.tables();
    let (print, epoch) = (at.print, at.epoch);
    let next = at.next(&tables.borrow());
    if let Some(next) = next {
        return Some(Walk { cursor: 0, at: Some(next) });
    }
    cluster.ask_now().await;
    let table = tables.borrow();
    if table.print().0 == print { None } else { Walk::begin(&table, epoch) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_can_be_read_back() {
        let at = At { node: "ab".into(), is_first: true, print: u64::MAX, epoch: 7, least: 0 };
        for walk in [Walk { cursor: 9, at: None }, Walk { cursor: u64::MAX, at: Some(at) }] {
            assert_eq!(Walk::parse(&walk.text()), Some(walk));
        }
        for forged in ["", "x", "1.a", "1.a.1.2.3", "1.a.1.2.3.x", "-1"] {
            assert_eq!(Walk::parse(forged), None, "{forged}");
        }
    }
}
