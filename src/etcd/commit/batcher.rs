//! Group commit, as a state machine without a clock, a server or a task.
//!
//! Items that wait are sent together. Nothing is held back to make a batch larger, so a lone
//! caller is not delayed. One batch is in flight at a time; items that arrive meanwhile make
//! up the next one.
//!
//! Two rules of etcd, measured on 3.4 to 3.6, matter here. All comparisons see the state
//! before the batch, and a batch that writes a key twice is refused, so items claim what
//! they write or depend on: two items of a batch may claim the same thing only if both claim
//! it as shared. A refusal concerns the whole batch, so its items are then sent alone, and
//! none fails because of another one.
//!
//! New queue entries are put into a batch after all else, but first into every fourth one. With
//! more waiters than etcd can enter before their deadlines, the write that grants to the first in
//! line would otherwise wait behind entries, and nobody would be granted anything.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    hash::Hash,
};

use leasehold_lock::Mode;
use tokio::time::Instant;

use crate::client::failure::Refusal;

/// The properties of an item that the batcher uses.
pub(crate) trait Item {
    /// A claim, exclusive or shared with other items.
    type Claim: Clone + Eq + Hash;
    /// The item's claims.
    fn claims(&self) -> &[(Self::Claim, Mode)];
    /// By how many operations it exceeds what [`Limits::items_max`] allows for each item.
    fn extra_ops(&self) -> usize;
    /// Whether it makes a queue longer.
    fn enters(&self) -> bool;
    /// The size that it takes up in a request.
    fn size_bytes(&self) -> usize;
    /// Why it must not be sent any more, if so.
    fn obsolete(&self, now: Instant) -> Option<Obsolete>;
}

/// Why an item is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obsolete {
    /// Its caller has gone.
    Abandoned,
    /// Its deadline has passed.
    Late,
    /// Its lease can no longer be used.
    Stale,
    /// etcd has no space left for it.
    OutOfSpace,
}

/// Limits of batches and of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Items in a batch, which leaves room for two operations in a nested transaction;
    /// halved when the server refuses that many.
    pub(crate) items_max: usize,
    /// Bytes in a batch; halved when the server refuses that many.
    pub(crate) bytes_max: usize,
    /// Items that may wait.
    pub(crate) waiting_max: usize,
}

/// Items that are sent as one transaction.
#[derive(Debug)]
pub(crate) struct Batch<T> {
    /// In the order of arrival; never empty.
    pub(crate) items: Vec<T>,
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every item has an answer, even if that is that its outcome is unknown.
    Answered,
    /// The server refused the batch as a whole.
    Refused(Refusal),
    /// It was certainly not sent; its items wait again.
    NotSent,
}

/// Queues items and chooses the batches.
#[derive(Debug)]
pub(crate) struct Batcher<T: Item> {
    limits: Limits,
    /// Items that make a queue longer.
    entering: VecDeque<Waiting<T>>,
    /// All other items.
    waiting: VecDeque<Waiting<T>>,
    /// How many batches were made while entries waited.
    batches: u64,
}

/// One batch in four takes entries before other items.
const ENTRIES_FIRST_IN: u64 = 4;

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    /// Whether its last batch was refused, so that it is sent alone.
    alone: bool,
}

impl<T: Item> Batcher<T> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, entering: VecDeque::new(), waiting: VecDeque::new(), batches: 0 }
    }

    /// Queues an item; gives it back if too many wait.
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

    /// The next batch, if anything waits, and the items that will not be sent any more. The
    /// previous batch must have ended: claims are compared within one batch only.
    pub(crate) fn next(&mut self, now: Instant) -> (Option<Batch<T>>, Vec<(T, Obsolete)>) {
        let mut next = Next {
            items: Vec::new(),
            bytes: 0,
            limits: self.limits,
            extra_ops: 0,
            claimed: HashMap::new(),
            obsolete: Vec::new(),
            complete: false,
        };
        self.batches += u64::from(!self.entering.is_empty());
        if !self.entering.is_empty() && self.batches.is_multiple_of(ENTRIES_FIRST_IN) {
            next.fill(&mut self.entering, now);
            next.fill(&mut self.waiting, now);
        } else {
            next.fill(&mut self.waiting, now);
            next.fill(&mut self.entering, now);
        }
        let items = next.items;
        ((!items.is_empty()).then_some(Batch { items }), next.obsolete)
    }

    /// Ends a batch. The items returned must be answered; the others wait again, before
    /// those that came later.
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
    limits: Limits,
    /// The most that one of the items exceeds its operations by: the batch has room for as
    /// many items less.
    extra_ops: usize,
    /// Skipped items claim too, so that items with a common claim stay in order.
    claimed: HashMap<T::Claim, Mode>,
    obsolete: Vec<(T, Obsolete)>,
    /// Whether it takes no more items.
    complete: bool,
}

impl<T: Item> Next<T> {
    /// Takes the items of `queue` that fit.
    fn fill(&mut self, queue: &mut VecDeque<Waiting<T>>, now: Instant) {
        let mut kept = VecDeque::new();
        while !self.complete
            && self.has_room(self.extra_ops)
            && let Some(waiting) = queue.pop_front()
        {
            if let Some(why) = waiting.item.obsolete(now) {
                self.obsolete.push((waiting.item, why));
                continue;
            }
            let size = waiting.item.size_bytes();
            let blocked = self.claim(waiting.item.claims());
            let is_first = self.items.is_empty();
            let extra_ops = self.extra_ops.max(waiting.item.extra_ops());
            let full = !is_first && self.bytes + size > self.limits.bytes_max
                || !self.has_room(extra_ops);
            if blocked || full || (waiting.alone && !is_first) {
                kept.push_back(waiting);
                continue;
            }
            self.bytes += size;
            self.extra_ops = extra_ops;
            self.complete = waiting.alone;
            self.items.push(waiting.item);
        }
        kept.append(queue);
        *queue = kept;
    }

    /// Whether another item fits beside so many extra operations. The first one always does.
    fn has_room(&self, extra_ops: usize) -> bool {
        self.items.is_empty() || self.items.len() + extra_ops < self.limits.items_max
    }

    /// Adds an item's claims; `true` if they exclude it from the batch.
    fn claim(&mut self, claims: &[(T::Claim, Mode)]) -> bool {
        let mut blocked = false;
        for (claim, mode) in claims {
            match self.claimed.entry(claim.clone()) {
                Entry::Vacant(vacant) => {
                    vacant.insert(*mode);
                }
                Entry::Occupied(claimed) if *claimed.get() == Mode::Exclusive => blocked = true,
                Entry::Occupied(mut claimed) => {
                    blocked |= *mode == Mode::Exclusive;
                    claimed.insert(*mode);
                }
            }
        }
        blocked
    }
}

#[cfg(test)]
mod tests;
