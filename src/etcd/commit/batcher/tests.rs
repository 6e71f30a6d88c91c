use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fake {
    number: u32,
    claims: Vec<(u8, Mode)>,
    bytes: usize,
    extra_ops: usize,
    obsolete: Option<Obsolete>,
}

impl Item for Fake {
    type Claim = u8;
    fn claims(&self) -> &[(u8, Mode)] {
        &self.claims
    }
    fn extra_ops(&self) -> usize {
        self.extra_ops
    }
    fn enters(&self) -> bool {
        self.claims.is_empty()
    }
    fn size_bytes(&self) -> usize {
        self.bytes
    }
    fn obsolete(&self, _: Instant) -> Option<Obsolete> {
        self.obsolete
    }
}

fn fake(number: u32, claim: Option<u8>) -> Fake {
    let claims = claim.map(|claim| (claim, Mode::Exclusive)).into_iter().collect();
    Fake { number, claims, bytes: 10, extra_ops: 0, obsolete: None }
}

/// An item that claims something together with others, and a thing of its own.
fn shared(number: u32, claim: u8) -> Fake {
    let own = (100 + number as u8, Mode::Exclusive);
    Fake { claims: vec![(claim, Mode::Shared), own], ..fake(number, None) }
}

fn batcher(items_max: usize) -> Batcher<Fake> {
    Batcher::new(Limits { items_max, bytes_max: 1_000, waiting_max: 1_000 })
}

fn numbers(batch: &Batch<Fake>) -> Vec<u32> {
    batch.items.iter().map(|item| item.number).collect()
}

fn next(batcher: &mut Batcher<Fake>) -> Option<Batch<Fake>> {
    batcher.next(Instant::now()).0
}

#[test]
fn a_lone_item_is_sent_at_once_and_what_waits_goes_together() {
    let mut batcher = batcher(126);
    batcher.push(fake(0, Some(0))).unwrap();
    let first = next(&mut batcher).unwrap();
    for n in 1..=3 {
        batcher.push(fake(n, Some(n as u8))).unwrap();
    }
    assert_eq!(batcher.done(first, Verdict::Answered).len(), 1);
    assert_eq!(numbers(&next(&mut batcher).unwrap()), [1, 2, 3]);
}

#[test]
fn a_resource_is_in_a_batch_once_and_its_items_stay_in_order() {
    let mut batcher = batcher(126);
    for (n, claim) in [(0, 7), (1, 7), (2, 8), (3, 7)] {
        batcher.push(fake(n, Some(claim))).unwrap();
    }
    let first = next(&mut batcher).unwrap();
    assert_eq!(numbers(&first), [0, 2]);
    batcher.done(first, Verdict::Answered);
    let second = next(&mut batcher).unwrap();
    assert_eq!(numbers(&second), [1]);
    batcher.done(second, Verdict::Answered);
    assert_eq!(numbers(&next(&mut batcher).unwrap()), [3]);
}

#[test]
fn shared_items_of_a_resource_go_together_and_an_exclusive_one_alone() {
    let mut batcher = batcher(126);
    let items = [shared(0, 7), shared(1, 7), fake(2, Some(7)), shared(3, 7), shared(4, 8)];
    for item in items {
        batcher.push(item).unwrap();
    }
    for expected in [&[0, 1, 4][..], &[2], &[3]] {
        let batch = next(&mut batcher).unwrap();
        assert_eq!(numbers(&batch), expected);
        batcher.done(batch, Verdict::Answered);
    }
}

#[test]
fn shared_items_with_a_key_in_common_are_sent_one_after_the_other() {
    let mut batcher = batcher(126);
    batcher.push(shared(0, 7)).unwrap();
    batcher.push(Fake { number: 1, ..shared(0, 7) }).unwrap();
    batcher.push(shared(2, 7)).unwrap();
    assert_eq!(numbers(&next(&mut batcher).unwrap()), [0, 2]);
    assert_eq!(numbers(&next(&mut batcher).unwrap()), [1]);
}

#[test]
fn items_with_more_operations_make_a_smaller_batch() {
    let mut batcher = batcher(4);
    for n in 0..8 {
        let extra_ops = if n == 1 { 2 } else { 0 };
        batcher.push(Fake { extra_ops, ..fake(n, None) }).unwrap();
    }
    assert_eq!(numbers(&next(&mut batcher).unwrap()), [0, 1]);
    assert_eq!(numbers(&next(&mut batcher).unwrap()), [2, 3, 4, 5]);
}

#[test]
fn queue_entries_claim_nothing_and_go_together() {
    let mut batcher = batcher(126);
    for n in 0..5 {
        batcher.push(fake(n, None)).unwrap();
    }
    assert_eq!(next(&mut batcher).unwrap().items.len(), 5);
}

/// With more entries than could be put before their waits' deadlines nobody was granted
/// anything: the write that grants waited behind them.
#[test]
fn queue_entries_leave_room_for_what_comes_later() {
    let mut batcher = batcher(8);
    for n in 0..20 {
        batcher.push(fake(n, None)).unwrap();
    }
    for n in 20..26 {
        batcher.push(fake(n, Some(n as u8))).unwrap();
    }
    let first = next(&mut batcher).unwrap();
    assert_eq!(numbers(&first), [20, 21, 22, 23, 24, 25, 0, 1]);
}

/// They got a share of the items of a batch only, and nothing of one that its bytes fill, that
/// has a single item, or that other items fill while the entry must be sent alone.
#[test]
fn queue_entries_come_first_in_every_fourth_batch() {
    let by_bytes = Limits { items_max: 126, bytes_max: 40, waiting_max: 1_000 };
    for limits in [Limits { items_max: 1, ..by_bytes }, by_bytes] {
        for was_refused in [false, true] {
            let mut batcher = Batcher::new(limits);
            batcher.push(fake(0, None)).unwrap();
            if was_refused {
                batcher.push(fake(1, None)).unwrap();
                let batch = Batch { items: vec![fake(0, None), fake(1, None)] };
                let _ = next(&mut batcher);
                let _ = next(&mut batcher);
                batcher.done(batch, Verdict::Refused(Refusal::LeaseNotFound));
            }
            for n in 10..100 {
                batcher.push(fake(n, Some(n as u8))).unwrap();
            }
            let entered = (0..4).any(|_| {
                let batch = next(&mut batcher).unwrap();
                batch.items.iter().any(|item| item.number == 0)
            });
            assert!(entered, "{limits:?} {was_refused}");
        }
    }
}

#[test]
fn a_refused_batch_is_retried_one_by_one_before_what_came_later() {
    let mut batcher = batcher(126);
    for n in 0..3 {
        batcher.push(fake(n, None)).unwrap();
    }
    let batch = next(&mut batcher).unwrap();
    batcher.push(fake(3, None)).unwrap();
    assert!(batcher.done(batch, Verdict::Refused(Refusal::LeaseNotFound)).is_empty());
    for n in 0..3 {
        let single = next(&mut batcher).unwrap();
        assert_eq!(numbers(&single), [n]);
        let refused = batcher.done(single, Verdict::Refused(Refusal::LeaseNotFound));
        assert_eq!(refused.len(), 1, "a refusal of one is that one's own");
    }
    assert_eq!(numbers(&next(&mut batcher).unwrap()), [3]);
}

#[test]
fn the_servers_limit_is_learnt_from_its_refusal() {
    let mut batcher = batcher(126);
    for n in 0..100 {
        batcher.push(fake(n, None)).unwrap();
    }
    let mut committed = Vec::new();
    while let Some(batch) = next(&mut batcher) {
        if batch.items.len() > 30 {
            assert!(batcher.done(batch, Verdict::Refused(Refusal::TooManyOps)).is_empty());
        } else {
            committed.extend(batcher.done(batch, Verdict::Answered).iter().map(|i| i.number));
        }
    }
    assert_eq!(committed, (0..100).collect::<Vec<_>>());
    assert_eq!(batcher.items_max(), 25);
}

#[test]
fn the_servers_request_size_is_learnt_from_its_refusal() {
    let mut batcher = batcher(126);
    for n in 0..100 {
        batcher.push(fake(n, None)).unwrap();
    }
    let (mut committed, mut refused) = (Vec::new(), 0);
    while let Some(batch) = next(&mut batcher) {
        if batch.items.iter().map(|item| item.bytes).sum::<usize>() > 300 {
            refused += 1;
            assert!(batcher.done(batch, Verdict::Refused(Refusal::TooLarge)).is_empty());
        } else {
            committed.extend(batcher.done(batch, Verdict::Answered).iter().map(|i| i.number));
        }
    }
    assert_eq!(committed, (0..100).collect::<Vec<_>>());
    assert_eq!(refused, 2, "every batch was refused again");
}

#[test]
fn a_batch_stays_below_its_size_and_an_item_beyond_it_goes_alone() {
    let mut batcher = batcher(126);
    for (n, bytes) in [(0, 600), (1, 600), (2, 300), (3, 5_000)] {
        batcher.push(Fake { bytes, ..fake(n, None) }).unwrap();
    }
    assert_eq!(numbers(&next(&mut batcher).unwrap()), [0, 2]);
    assert_eq!(numbers(&next(&mut batcher).unwrap()), [1]);
    assert_eq!(numbers(&next(&mut batcher).unwrap()), [3]);
}

#[test]
fn what_nobody_waits_for_is_not_sent() {
    let mut batcher = batcher(126);
    batcher.push(Fake { obsolete: Some(Obsolete::Abandoned), ..fake(0, Some(1)) }).unwrap();
    batcher.push(fake(1, Some(1))).unwrap();
    let (batch, obsolete) = batcher.next(Instant::now());
    assert_eq!(numbers(&batch.unwrap()), [1]);
    assert_eq!(obsolete[0].1, Obsolete::Abandoned);
}

#[test]
fn a_batch_that_was_not_sent_waits_again_in_its_old_place() {
    let mut batcher = batcher(2);
    for n in 0..3 {
        batcher.push(fake(n, Some(n as u8))).unwrap();
    }
    let batch = next(&mut batcher).unwrap();
    assert!(batcher.done(batch, Verdict::NotSent).is_empty());
    assert_eq!(numbers(&next(&mut batcher).unwrap()), [0, 1]);
}

#[test]
fn too_many_waiting_is_a_refusal() {
    let mut batcher = Batcher::new(Limits { items_max: 1, bytes_max: 1, waiting_max: 1 });
    assert!(batcher.push(fake(0, None)).is_ok());
    assert!(batcher.push(fake(1, None)).is_err());
}

proptest! {
    /// In every schedule, every item is answered once, an exclusive item of a resource after
    /// those before it and before those after it, and in no batch with any of them.
    #[test]
    fn nothing_is_lost_repeated_or_reordered(
        claims in prop::collection::vec(prop::option::of((0u8..4, any::<bool>())), 1..60),
        verdicts in prop::collection::vec(0u8..5, 1..40),
        items_max in 1usize..8,
    ) {
        let mut batcher = batcher(items_max);
        for (n, claim) in claims.iter().enumerate() {
            let n = n as u32;
            let item = match claim {
                Some((claim, true)) => shared(n, *claim),
                Some((claim, false)) => fake(n, Some(*claim)),
                None => fake(n, None),
            };
            batcher.push(item).unwrap();
        }
        let mut answered: Vec<Fake> = Vec::new();
        let mut verdicts = verdicts.into_iter();
        while let Some(batch) = next(&mut batcher) {
            prop_assert!(batch.items.len() <= items_max);
            let mut seen = HashMap::new();
            for (claim, mode) in batch.items.iter().filter_map(|item| item.claims.first()) {
                let before = seen.insert(*claim, *mode);
                let both_shared = *mode == Mode::Shared && before == Some(Mode::Shared);
                prop_assert!(before.is_none() || both_shared, "{claim} is in a batch twice");
            }
            let verdict = match verdicts.next() {
                Some(0) => Verdict::NotSent,
                Some(1) => Verdict::Refused(Refusal::LeaseNotFound),
                Some(2) => Verdict::Refused(Refusal::TooManyOps),
                Some(3) => Verdict::Refused(Refusal::TooLarge),
                _ => Verdict::Answered,
            };
            answered.extend(batcher.done(batch, verdict));
        }
        let mut all: Vec<u32> = answered.iter().map(|item| item.number).collect();
        for claim in 0..4 {
            let is_of = |item: &&Fake| item.claims.first().is_some_and(|(c, _)| *c == claim);
            let of_one: Vec<_> = answered.iter().filter(is_of).collect();
            for (at, item) in of_one.iter().enumerate() {
                if item.claims.iter().all(|(_, mode)| *mode == Mode::Exclusive) {
                    let (before, after) = (&of_one[..at], &of_one[at + 1..]);
                    prop_assert!(before.iter().all(|other| other.number < item.number));
                    prop_assert!(after.iter().all(|other| other.number > item.number));
                }
            }
        }
        all.sort_unstable();
        prop_assert_eq!(all, (0..claims.len() as u32).collect::<Vec<_>>());
    }
}
