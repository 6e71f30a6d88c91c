//! Which node of a Cluster has which slot.
//!
//! Each node says it from its own view. A master that is cut off goes on to claim its slots, so
//! the claim with the greatest epoch counts: each failover and each slot that is moved has a
//! greater one.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    keys::{SLOTS, Slot},
    view::{Address, Line, NODES_MAX, Open, View},
};

/// For how long a claim that nobody repeats outranks one with a smaller epoch. After that the
/// Cluster may have been made anew.
const OUTDATED_FOR: Duration = Duration::from_secs(30);

/// The node that has a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    id: Arc<str>,
    pub(super) node: Arc<Address>,
    pub(super) epoch: u64,
}

struct Claim {
    owner: Owner,
    heard: Instant,
}

/// The owners of all slots, as far as is known.
pub(super) struct SlotTable {
    claims: Box<[Option<Claim>]>,
    /// Every node that any node has named, by its ID.
    nodes: BTreeMap<Arc<str>, Named>,
}

struct Named {
    address: Arc<Address>,
    /// The slots that it says are open at it.
    opens: Vec<Open>,
    /// Its address and its host name, as redirections may name it.
    names: [Option<Address>; 2],
}

impl SlotTable {
    pub(super) fn new() -> Self {
        Self { claims: (0..SLOTS).map(|_| None).collect(), nodes: BTreeMap::new() }
    }

    pub(super) fn owner(&self, slot: Slot) -> Option<&Owner> {
        Some(&self.claims.get(usize::from(slot.0))?.as_ref()?.owner)
    }

    /// The nodes that have slots.
    pub(super) fn owners(&self) -> BTreeSet<Arc<Address>> {
        let mut owners = BTreeSet::new();
        let mut last = None;
        for claim in self.claims.iter().flatten() {
            if last != Some(&claim.owner.node) {
                owners.insert(Arc::clone(&claim.owner.node));
                last = Some(&claim.owner.node);
            }
        }
        owners
    }

    /// How many slots nobody has.
    pub(super) fn missing(&self) -> usize {
        self.claims.iter().filter(|claim| claim.is_none()).count()
    }

    /// Where the node with this ID is.
    pub(super) fn address_of(&self, id: &str) -> Option<Arc<Address>> {
        self.nodes.get(id).map(|node| Arc::clone(&node.address))
    }

    /// A number that differs if any slot has another owner or is open otherwise, and the greatest
    /// epoch.
    pub(super) fn print(&self) -> (u64, u64) {
        let mut hasher = DefaultHasher::new();
        let (mut last, mut epoch) = (None, 0);
        for (slot, claim) in self.claims.iter().enumerate() {
            let owner = claim.as_ref().map(|claim| (&claim.owner.id, claim.owner.epoch));
            if owner != last {
                (slot, owner).hash(&mut hasher);
                last = owner;
            }
            epoch = epoch.max(owner.map_or(0, |(_, epoch)| epoch));
        }
        for (id, node) in &self.nodes {
            for open in &node.opens {
                (id, open).hash(&mut hasher);
            }
        }
        (hasher.finish(), epoch)
    }

    /// The IDs of the nodes that a walk visits, in order: the sources of open slots first, and then
    /// all that have slots, or to which some are moved, and have at least this epoch.
    pub(super) fn stops(&self, are_sources: bool, least: u64) -> BTreeSet<Arc<str>> {
        let mut stops = BTreeSet::new();
        for (id, node) in &self.nodes {
            if node.opens.iter().any(|open| open.is_source || !are_sources) {
                stops.insert(Arc::clone(id));
            }
        }
        if !are_sources {
            let mut last = None;
            for Claim { owner, .. } in self.claims.iter().flatten() {
                if last != Some(&owner.id) {
                    if owner.epoch >= least {
                        stops.insert(Arc::clone(&owner.id));
                    }
                    last = Some(&owner.id);
                }
            }
        }
        stops
    }

    /// Every node that was named, replicas included.
    pub(super) fn nodes(&self) -> BTreeSet<Arc<Address>> {
        self.nodes.values().map(|node| Arc::clone(&node.address)).collect()
    }

    /// The node that a redirection names.
    pub(super) fn named(&self, address: Address) -> Arc<Address> {
        let is_named = |node: &&Named| node.names.iter().flatten().any(|name| *name == address);
        let node = self.nodes.values().find(is_named);
        node.map_or_else(|| Arc::new(address), |node| Arc::clone(&node.address))
    }

    /// Takes over what nodes have said. Returns whether a slot has another owner.
    pub(super) fn merge(&mut self, views: Vec<View>, now: Instant) -> bool {
        let mut lines: Vec<_> = views.into_iter().flat_map(|view| view.lines).collect();
        // A node knows its own address best, so its own line comes last.
        lines.sort_by_key(|line| line.is_own);
        // A node that speaks for itself is believed about itself. Others may know its newest epoch,
        // and not yet that it has given up a slot.
        let speakers: BTreeSet<_> =
            lines.iter().filter(|line| line.is_own).map(|line| Arc::clone(&line.id)).collect();
        let mut newest: Vec<Option<&Line>> = vec![None; SLOTS];
        for line in lines.iter().filter(|line| line.is_own || !speakers.contains(&line.id)) {
            for slot in line.ranges.iter().flat_map(|(first, last)| *first..=*last) {
                let Some(known) = newest.get_mut(usize::from(slot)) else { continue };
                if known.is_none_or(|known| {
                    line.epoch > known.epoch || line.epoch == known.epoch && line.id == known.id
                }) {
                    *known = Some(line);
                }
            }
        }
        let mut has_changed = false;
        for (claim, line) in self.claims.iter_mut().zip(newest) {
            let Some(line) = line else { continue };
            if let Some(known) = claim {
                let is_older = line.epoch < known.owner.epoch
                    || line.epoch == known.owner.epoch && line.id != known.owner.id;
                if is_older && now.duration_since(known.heard) < OUTDATED_FOR {
                    continue;
                }
                if line.epoch == known.owner.epoch
                    && line.id == known.owner.id
                    && line.address == known.owner.node
                {
                    known.heard = now;
                    continue;
                }
            }
            let (id, node) = (Arc::clone(&line.id), Arc::clone(&line.address));
            *claim = Some(Claim { owner: Owner { id, node, epoch: line.epoch }, heard: now });
            has_changed = true;
        }
        self.note_nodes(lines);
        has_changed
    }

    /// Remembers the nodes that were named, and forgets all others.
    fn note_nodes(&mut self, lines: Vec<Line>) {
        let mut nodes = BTreeMap::new();
        for line in lines {
            let Line { id, address, names, opens, is_own, has_failed, .. } = line;
            if nodes.len() >= NODES_MAX && !nodes.contains_key(&id) {
                continue;
            }
            // What is open at another one is known from what it said itself, while it can.
            let before = self.nodes.get(&id).filter(|_| !is_own && !has_failed);
            let opens = before.map_or(opens, |before| before.opens.clone());
            nodes.insert(id, Named { address, names, opens });
        }
        if !nodes.is_empty() {
            self.nodes = nodes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(lines: &[&str]) -> View {
        View::read(&lines.join("\n"), "asked", false)
    }

    fn merged(rounds: &[&[&str]]) -> SlotTable {
        let mut table = SlotTable::new();
        for round in rounds {
            table.merge(round.iter().map(|line| says(&[line])).collect(), Instant::now());
        }
        table
    }

    fn owner(table: &SlotTable, slot: u16) -> String {
        table.owner(Slot(slot)).map_or_else(String::new, |owner| owner.node.to_string())
    }

    const OLD: &str = "a 1.1.1.1:1@11 master - 0 0 3 connected 0-16383";
    const NEW: &str = "b 1.1.1.2:2@12 master - 0 0 5 connected 7";

    #[test]
    fn the_claim_with_the_greatest_epoch_counts() {
        for views in [[OLD, NEW], [NEW, OLD]] {
            let table = merged(&[&views]);
            assert_eq!(
                [6, 7, 8].map(|slot| owner(&table, slot)),
                ["1.1.1.1:1", "1.1.1.2:2", "1.1.1.1:1"]
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_claim_counts_once_the_newer_was_not_heard_of_for_long() {
        let mut table = merged(&[&[OLD, NEW]]);
        let now = Instant::now();
        assert!(!table.merge(vec![says(&[OLD])], now + OUTDATED_FOR / 2));
        assert_eq!(owner(&table, 7), "1.1.1.2:2");
        assert!(table.merge(vec![says(&[OLD])], now + OUTDATED_FOR));
        assert_eq!(owner(&table, 7), "1.1.1.1:1");
    }

    #[test]
    fn a_node_that_moved_to_another_address_keeps_its_slots() {
        let moved = "b 1.1.1.9:9@12 myself,master - 0 0 5 connected 7";
        assert_eq!(owner(&merged(&[&[OLD, NEW], &[moved, NEW]]), 7), "1.1.1.9:9");
    }

    #[test]
    fn an_empty_host_is_the_one_that_was_asked() {
        let own = "a :6379@16379 myself,master - 0 0 1 connected 0 2-3 [4->-b] [5-<-c]";
        let table = merged(&[&[own]]);
        assert_eq!(owner(&table, 0), "asked:6379");
        assert_eq!(
            [1, 2, 4, 5].map(|slot| owner(&table, slot).is_empty()),
            [true, false, true, true]
        );
        assert_eq!(Address::read(":7", "asked").unwrap().to_string(), "asked:7");
        assert_eq!(Address::read("::1:7", "asked").unwrap().to_string(), "[::1]:7");
        assert_eq!(Address::read("h:0", "asked"), None);
    }

    /// The limit counted what each node says of each other one.
    #[test]
    fn an_open_slot_is_noticed_among_many_nodes() {
        let line = |node: usize, own: bool| {
            let (flags, open) =
                if own { ("myself,master", " [5->-x]") } else { ("master", "") };
            format!(
                "n{node} 1.1.1.1:{}@9 {flags} - 0 0 {node} connected {node}{open}",
                node + 1
            )
        };
        let view =
            |own| (0..40).map(|node| line(node, node == own)).collect::<Vec<_>>().join("\n");
        let mut table = SlotTable::new();
        table.merge((0..40).map(|own| says(&[&view(own)])).collect(), Instant::now());
        assert_eq!(table.stops(true, 0).len(), 40);
    }

    #[test]
    fn what_was_open_at_a_node_that_is_down_is_forgotten() {
        let own = "a 1.1.1.1:1@11 myself,master - 0 0 3 connected 0-9 [7->-b]";
        for (flags, sources) in [("master", 1), ("master,fail", 0), ("slave", 0)] {
            let after = format!("a 1.1.1.1:1@11 {flags} - 0 0 3 connected");
            assert_eq!(
                merged(&[&[own], &[&after, NEW]]).stops(true, 0).len(),
                sources,
                "{flags}"
            );
        }
    }

    #[test]
    fn a_slot_that_a_node_has_given_up_is_not_its_own_by_what_others_say() {
        // It has imported slot 1 since, with a greater epoch.
        let own = "a 1.1.1.1:1@11 myself,master - 0 0 12 connected 1";
        let taken = "b 1.1.1.2:2@12 myself,master - 0 0 9 connected 7";
        let late = "c 1.1.1.3:3@13 myself,master - 0 0 1 connected 2\n\
                    a 1.1.1.1:1@11 master - 0 0 12 connected 1 7";
        assert_eq!(owner(&merged(&[&[own, taken, late]]), 7), "1.1.1.2:2");
    }

    #[test]
    fn a_redirection_may_name_a_node_by_its_address_or_its_host_name() {
        let line = "a 10.0.0.1:1@11,node-1,shard-id=7 master - 0 0 3 connected 0";
        for by_name in [false, true] {
            let mut table = SlotTable::new();
            table.merge(vec![View::read(line, "asked", by_name)], Instant::now());
            let called = if by_name { "node-1:1" } else { "10.0.0.1:1" };
            for name in ["10.0.0.1:1", "node-1:1"] {
                let address = Address::read(name, "").unwrap();
                assert_eq!(table.named(address).to_string(), called);
            }
        }
    }
}
