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

use std::{
    collections::{HashSet, VecDeque},
    hash::Hash,
};

use tokio::time::Instant;

use super::failure::Refusal;

/// What the batcher must know of an item.
pub(super) trait Item {
    /// What no two items of a batch may both claim.
    type Claim: Clone + Eq + Hash;
    /// What it claims, if anything.
    fn claim(&self) -> Option<&Self::Claim>;
    /// Its share of a request's size.
    fn size_bytes(&self) -> usize;
    /// Why it must not be sent any more.
    fn obsolete(&self, now: Instant) -> Option<Obsolete>;
}

/// Why an item is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obsolete {
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
pub(super) struct Limits {
    /// Items a batch; halved when the server refuses that many.
    pub(super) items_max: usize,
    /// Bytes a batch; halved when the server refuses that many.
    pub(super) bytes_max: usize,
    /// Items waiting.
    pub(super) waiting_max: usize,
}

/// What is sent as one transaction.
#[derive(Debug)]
pub(super) struct Batch<T> {
    /// In the order of arrival; never empty.
    pub(super) items: Vec<T>,
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every item has an answer, be it that its outcome is unknown.
    Answered,
    /// The server refused the batch as a whole.
    Refused(Refusal),
    /// It was certainly not sent; its items wait again.
    NotSent,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Batcher<T: Item> {
    limits: Limits,
    waiting: VecDeque<Waiting<T>>,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    /// Its last batch was refused: it is sent by itself.
    alone: bool,
}

impl<T: Item> Batcher<T> {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, waiting: VecDeque::new() }
    }

    /// Takes an item; gives it back if too many wait.
    pub(super) fn push(&mut self, item: T) -> Result<(), T> {
        if self.waiting.len() >= self.limits.waiting_max {
            return Err(item);
        }
        self.waiting.push_back(Waiting { item, alone: false });
        Ok(())
    }

    /// How many items wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The next batch, if anything waits, and what will not be sent any more.
    /// The batch before must have ended: nothing is compared with it.
    pub(super) fn next(&mut self, now: Instant) -> (Option<Batch<T>>, Vec<(T, Obsolete)>) {
        let mut obsolete = Vec::new();
        let mut items = Vec::new();
        let mut bytes = 0;
        let mut kept = VecDeque::new();
        // What is passed over claims its resource too, so that items of one
        // resource stay in order.
        let mut claimed: HashSet<T::Claim> = HashSet::new();
        while let Some(waiting) = self.waiting.pop_front() {
            if let Some(why) = waiting.item.obsolete(now) {
                obsolete.push((waiting.item, why));
                continue;
            }
            let size = waiting.item.size_bytes();
            let claim = waiting.item.claim();
            let blocked = claim.is_some_and(|claim| claimed.contains(claim));
            claimed.extend(claim.cloned());
            let full = !items.is_empty() && bytes + size > self.limits.bytes_max;
            if blocked || full || (waiting.alone && !items.is_empty()) {
                kept.push_back(waiting);
                continue;
            }
            bytes += size;
            items.push(waiting.item);
            if waiting.alone || items.len() >= self.limits.items_max {
                break;
            }
        }
        kept.append(&mut self.waiting);
        self.waiting = kept;
        ((!items.is_empty()).then_some(Batch { items }), obsolete)
    }

    /// Ends a batch. What is returned must be answered; all else waits again,
    /// before what came later.
    pub(super) fn done(&mut self, batch: Batch<T>, verdict: Verdict) -> Vec<T> {
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
            self.waiting.push_front(Waiting { item, alone });
        }
        Vec::new()
    }

    /// How many items a batch may have now.
    #[cfg(test)]
    fn items_max(&self) -> usize {
        self.limits.items_max
    }
}

#[cfg(test)]
mod tests;
