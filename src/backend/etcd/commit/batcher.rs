//! Group commit, as a state machine without a clock, a server or a task.
//!
//! What waits is sent together: nothing is ever held back to make a batch
//! larger, so a lone caller pays nothing. One batch is in flight at a time; what
//! arrives meanwhile waits, and that is what fills the next one.
//!
//! Rules, all measured on etcd 3.4 to 3.6: comparisons see the state before the
//! batch, and a key written twice refuses all of it, so a resource is in one
//! batch at a time; a refusal concerns the whole batch, so its members are then
//! sent alone, and nobody pays for a neighbour.
//!
//! New queue entries get a quarter of a batch while anything else waits. Otherwise, with
//! more waits than etcd can enter before their deadlines, the write that grants to the
//! first in line would wait behind entries, and nobody would be granted anything.

use std::{
    collections::{HashSet, VecDeque},
    hash::Hash,
};

use tokio::time::Instant;

use crate::backend::etcd::client::failure::Refusal;

/// What the batcher must know of an item.
pub(crate) trait Item {
    /// What no two items of a batch may both claim.
    type Claim: Clone + Eq + Hash;
    /// What it claims, if anything.
    fn claim(&self) -> Option<&Self::Claim>;
    /// Whether it makes a queue longer.
    fn enters(&self) -> bool;
    /// Its share of a request's size.
    fn size_bytes(&self) -> usize;
    /// Why it must not be sent any more.
    fn obsolete(&self, now: Instant) -> Option<Obsolete>;
}

/// Why an item is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obsolete {
    /// Nobody waits for it.
    Abandoned,
    /// Its time is over.
    Late,
    /// Its lease is no longer fresh enough.
    Stale,
    /// etcd has no space left for it.
    OutOfSpace,
}

/// How much may be sent at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Items a batch; halved when the server refuses that many.
    pub(crate) items_max: usize,
    /// Bytes a batch; halved when the server refuses that many.
    pub(crate) bytes_max: usize,
    /// Items waiting.
    pub(crate) waiting_max: usize,
}

/// What is sent as one transaction.
#[derive(Debug)]
pub(crate) struct Batch<T> {
    /// In the order of arrival; never empty.
    pub(crate) items: Vec<T>,
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every item has an answer, be it that its outcome is unknown.
    Answered,
    /// The server refused the batch as a whole.
    Refused(Refusal),
    /// It was certainly not sent; its items wait again.
    NotSent,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Batcher<T: Item> {
    limits: Limits,
    /// Those that make a queue longer.
    entering: VecDeque<Waiting<T>>,
    /// All others.
    waiting: VecDeque<Waiting<T>>,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    /// Its last batch was refused: it is sent by itself.
    alone: bool,
}

impl<T: Item> Batcher<T> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, entering: VecDeque::new(), waiting: VecDeque::new() }
    }

    /// Takes an item; gives it back if too many wait.
    pub(crate) fn push(&mut self, item: T) -> Result<(), T> {
        if self.waiting() >= self.limits.waiting_max {
            return Err(item);
        }
        self.queue_of(&item).push_back(Waiting { item, alone: false });
        Ok(())
    }

    fn queue_of(&mut self, item: &T) -> &mut VecDeque<Waiting<T>> {
        if item.enters() { &mut self.entering } else { &mut self.waiting }
    }

    /// How many items wait.
    pub(crate) fn waiting(&self) -> usize {
        self.entering.len() + self.waiting.len()
    }

    /// The next batch, if anything waits, and what will not be sent any more.
    /// The batch before must have ended: nothing is compared with it.
    pub(crate) fn next(&mut self, now: Instant) -> (Option<Batch<T>>, Vec<(T, Obsolete)>) {
        let Limits { items_max, bytes_max, .. } = self.limits;
        let others_max = match self.entering.is_empty() {
            true => items_max,
            false => (3 * items_max).div_ceil(4),
        };
        let mut next = Next {
            items: Vec::new(),
            bytes: 0,
            bytes_max,
            claimed: HashSet::new(),
            obsolete: Vec::new(),
            complete: false,
        };
        next.fill(&mut self.waiting, others_max, now);
        next.fill(&mut self.entering, items_max, now);
        let items = next.items;
        ((!items.is_empty()).then_some(Batch { items }), next.obsolete)
    }

    /// Ends a batch. What is returned must be answered; all else waits again,
    /// before what came later.
    pub(crate) fn done(&mut self, batch: Batch<T>, verdict: Verdict) -> Vec<T> {
        let several = batch.items.len() > 1;
        let alone = match verdict {
            Verdict::Answered => return batch.items,
            Verdict::Refused(_) if !several => return batch.items,
            Verdict::Refused(Refusal::TooManyOps) => {
                self.limits.items_max = (batch.items.len() / 2).max(1);
                false
            }
            Verdict::Refused(Refusal::TooLarge) => {
                let bytes: usize = batch.items.iter().map(Item::size_bytes).sum();
                self.limits.bytes_max = bytes / 2;
                false
            }
            Verdict::Refused(_) => true,
            Verdict::NotSent => false,
        };
        for item in batch.items.into_iter().rev() {
            self.queue_of(&item).push_front(Waiting { item, alone });
        }
        Vec::new()
    }

    /// How many items a batch may have now.
    #[cfg(test)]
    fn items_max(&self) -> usize {
        self.limits.items_max
    }
}

/// A batch that is being put together.
struct Next<T: Item> {
    items: Vec<T>,
    bytes: usize,
    bytes_max: usize,
    /// What is passed over claims its resource too, so that items of one resource stay
    /// in order.
    claimed: HashSet<T::Claim>,
    obsolete: Vec<(T, Obsolete)>,
    /// Whether it takes no more.
    complete: bool,
}

impl<T: Item> Next<T> {
    /// Takes from `queue` what fits, until the batch has `items_max` items.
    fn fill(&mut self, queue: &mut VecDeque<Waiting<T>>, items_max: usize, now: Instant) {
        let mut kept = VecDeque::new();
        while !self.complete
            && self.items.len() < items_max
            && let Some(waiting) = queue.pop_front()
        {
            if let Some(why) = waiting.item.obsolete(now) {
                self.obsolete.push((waiting.item, why));
                continue;
            }
            let size = waiting.item.size_bytes();
            let claim = waiting.item.claim();
            let blocked = claim.is_some_and(|claim| self.claimed.contains(claim));
            self.claimed.extend(claim.cloned());
            let is_first = self.items.is_empty();
            let full = !is_first && self.bytes + size > self.bytes_max;
            if blocked || full || (waiting.alone && !is_first) {
                kept.push_back(waiting);
                continue;
            }
            self.bytes += size;
            self.complete = waiting.alone;
            self.items.push(waiting.item);
        }
        kept.append(queue);
        *queue = kept;
    }
}

#[cfg(test)]
mod tests;
