//! Slots that move between shards.

use std::{ops::RangeInclusive, time::Duration};

use leasehold_testkit::wait::eventually;
use redis::{aio::MultiplexedConnection, cmd};

use super::{super::offsets::Promotion, RedisCluster, SHARDS};
use crate::{clock::now_ns, slots::slot_of};

const MOVED_WITHIN: Duration = Duration::from_secs(15);
/// How many keys are moved at a time.
const KEYS_MOVED: usize = 100;

/// A slot that was moved from its shard to another one, and back.
#[derive(Debug)]
pub(super) struct Visit {
    slot: u16,
    shard: usize,
    from_ns: u64,
    until_ns: u64,
}

impl RedisCluster {
    /// Slots of a shard in which there are locks, or queues.
    pub(crate) async fn used_slots(&self, shard: usize) -> anyhow::Result<Vec<u16>> {
        let mut connection = self.nodes[self.master_of(shard).await?].at.connect().await?;
        let keys: Vec<Vec<u8>> = cmd("KEYS").arg("*").query_async(&mut connection).await?;
        let used = keys.iter().filter(|key| !key.starts_with(b"\x01c"));
        let mut slots: Vec<_> = used.map(|key| slot_of(key)).collect();
        slots.sort_unstable();
        slots.dedup();
        Ok(slots)
    }

    /// Records that a slot is about to leave its shard for another one.
    pub(crate) fn begin_visit(&mut self, slot: u16, shard: usize) {
        self.visits.push(Visit { slot, shard, from_ns: now_ns(), until_ns: u64::MAX });
    }

    /// Records that all slots are back.
    pub(crate) fn end_visits(&mut self) {
        let now_ns = now_ns();
        for visit in &mut self.visits {
            visit.until_ns = visit.until_ns.min(now_ns);
        }
    }

    /// Begins to move a slot between shards, and moves this share of its keys.
    pub(crate) async fn open_slot(
        &self,
        slot: u16,
        from: usize,
        to: usize,
        part: f64,
    ) -> anyhow::Result<()> {
        eventually(MOVED_WITHIN, "the slot is open", async || {
            let (source, target) = (self.master_of(from).await?, self.master_of(to).await?);
            self.open(slot, source, target).await?;
            let mut connection = self.nodes[source].at.connect().await?;
            let mut count = cmd("CLUSTER");
            count.arg("COUNTKEYSINSLOT").arg(slot);
            let keys: u32 = count.query_async(&mut connection).await?;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let most = (f64::from(keys) * part) as usize;
            self.move_keys(slot, &mut connection, target, most).await.map(drop)
        })
        .await
    }

    async fn open(&self, slot: u16, source: usize, target: usize) -> anyhow::Result<()> {
        let (slot, ids) =
            (slot.to_string(), [source, target].map(|node| &*self.nodes[node].id));
        // The target refuses this if it has the slot already.
        let import = ["SETSLOT", &slot, "IMPORTING", ids[0]];
        if self.nodes[target].ask::<()>(&import).await.is_ok() {
            let () = self.nodes[source].ask(&["SETSLOT", &slot, "MIGRATING", ids[1]]).await?;
        }
        Ok(())
    }

    /// Moves a slot between shards, also one that is open.
    pub(crate) async fn move_slot(
        &self,
        slot: u16,
        from: usize,
        to: usize,
    ) -> anyhow::Result<()> {
        eventually(MOVED_WITHIN, "the slot has moved", async || {
            let (source, target) = (self.master_of(from).await?, self.master_of(to).await?);
            self.open(slot, source, target).await?;
            let mut connection = self.nodes[source].at.connect().await?;
            while self.move_keys(slot, &mut connection, target, KEYS_MOVED).await? > 0 {}
            let text = slot.to_string();
            let owned = ["SETSLOT", &text, "NODE", &self.nodes[target].id];
            // The new owner first: otherwise nobody would have the slot.
            let () = self.nodes[target].ask(&owned).await?;
            for shard in (0..SHARDS).filter(|shard| *shard != to) {
                let () = self.nodes[self.master_of(shard).await?].ask(&owned).await?;
            }
            Ok(())
        })
        .await
    }

    /// Returns how many keys were moved.
    async fn move_keys(
        &self,
        slot: u16,
        source: &mut MultiplexedConnection,
        target: usize,
        most: usize,
    ) -> anyhow::Result<usize> {
        let mut get = cmd("CLUSTER");
        get.arg("GETKEYSINSLOT").arg(slot).arg(most);
        let keys: Vec<Vec<u8>> = get.query_async(source).await?;
        if !keys.is_empty() {
            let mut migrate = cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(self.nodes[target].at.server.port());
            migrate.arg("").arg(0).arg(5_000).arg("KEYS").arg(&keys);
            let _: String = migrate.query_async(source).await?;
        }
        Ok(keys.len())
    }
}

/// What a promotion may have lost: of the slots of its shard what the replica had not received,
/// and all of those that moved meanwhile, because their keys were copied.
pub(super) fn of_shard(
    promotion: &Promotion,
    shares: &[RangeInclusive<u16>],
    visits: &[Visit],
) -> Vec<Promotion> {
    let shard = promotion.server % SHARDS;
    let share = &shares[shard];
    let visits = visits.iter().filter(|visit| {
        (visit.shard == shard || share.contains(&visit.slot))
            && visit.until_ns >= promotion.kept_ns
            && visit.from_ns <= promotion.by_ns
    });
    let moved: Vec<_> = visits.map(|visit| visit.slot..=visit.slot).collect();
    let mut all = vec![Promotion { slots: Some(vec![share.clone()]), ..promotion.clone() }];
    if !moved.is_empty() {
        all.push(Promotion { kept_ns: 0, slots: Some(moved), ..promotion.clone() });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARES: [RangeInclusive<u16>; SHARDS] = [0..=9, 10..=19, 20..=29];

    /// The moment from which on writes in these slots may be lost by a promotion of node 4.
    fn lost(visits: &[Visit]) -> Vec<(u64, Vec<RangeInclusive<u16>>)> {
        let promotion =
            Promotion { server: 4, after_ns: 90, by_ns: 100, kept_ns: 50, slots: None };
        let all = of_shard(&promotion, &SHARES, visits).into_iter();
        all.map(|it| (it.kept_ns, it.slots.unwrap_or_default())).collect()
    }

    #[test]
    fn a_promotion_loses_writes_of_its_shard() {
        assert_eq!(lost(&[]), [(50, vec![10..=19])]);
    }

    #[test]
    fn a_slot_that_moves_during_a_failover_may_lose_everything() {
        let visit = |slot, shard, from_ns, until_ns| Visit { slot, shard, from_ns, until_ns };
        for (slot, shard) in [(3, 1), (13, 0)] {
            for (from_ns, until_ns) in [(0, 50), (100, 200), (60, 70)] {
                let moved = lost(&[visit(slot, shard, from_ns, until_ns)]);
                assert_eq!(moved, [(50, vec![10..=19]), (0, vec![slot..=slot])]);
            }
            for (from_ns, until_ns) in [(0, 49), (101, 200)] {
                let moved = lost(&[visit(slot, shard, from_ns, until_ns)]);
                assert_eq!(moved, [(50, vec![10..=19])]);
            }
        }
        assert_eq!(lost(&[visit(3, 2, 60, 70)]), [(50, vec![10..=19])], "between other shards");
    }
}
