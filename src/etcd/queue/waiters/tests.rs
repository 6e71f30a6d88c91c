use super::*;

const WATCH: i64 = 7;

fn queue() -> Queue {
    let queue = Queue::new(ResourceId::new("r").unwrap(), "me".into(), 10);
    queue.followed_by(WATCH);
    queue
}

fn entry(session: &str, seq: u64) -> EntryId {
    EntryId { session: session.into(), seq, shared: false }
}

fn put(seq: u64, at: u64) -> Event {
    Event { put: true, part: Part::Entry(entry("other", seq)), at: Revision(at) }
}

fn delete(seq: u64, at: u64) -> Event {
    Event { put: false, ..put(seq, at) }
}

fn list(revision: u64, entries: &[(u64, u64)]) -> List {
    let part = |seq: &u64| Part::Entry(entry("other", *seq));
    let keys = entries.iter().map(|(seq, at)| (part(seq), Revision(*at))).collect();
    List { revision: Revision(revision), keys }
}

fn order(queue: &Queue) -> Vec<u64> {
    let mut state = queue.state.lock();
    let mut order = Vec::new();
    while let Some(head) = state.mirror.head().cloned() {
        order.push(head.seq);
        state.mirror.delete(&Part::Entry(head), Revision(u64::MAX));
    }
    order
}

/// Trap: etcd 39
#[test]
fn events_that_come_while_a_list_is_read_are_applied_after_it() {
    let queue = queue();
    let number = queue.begin_list();
    queue.apply(WATCH, vec![put(1, 10)]);
    queue.apply(WATCH, vec![put(2, 11)]);
    queue.apply(WATCH, vec![delete(1, 12)]);
    assert!(queue.finish_list(number, list(10, &[(1, 10)])));
    assert_eq!(order(&queue), [2]);
}

#[test]
fn a_mirror_that_is_listed_again_loses_no_event() {
    let queue = queue();
    let number = queue.begin_list();
    assert!(queue.finish_list(number, list(10, &[(1, 9)])));
    let number = queue.begin_list();
    queue.apply(WATCH, vec![put(2, 13)]);
    assert!(queue.finish_list(number, list(11, &[(1, 9)])));
    assert_eq!(order(&queue), [1, 2]);
}

/// Trap: etcd 39
#[test]
fn a_list_during_which_too_much_happened_does_not_count() {
    let queue = queue();
    let number = queue.begin_list();
    let events = u64::try_from(EVENTS_MAX).unwrap();
    queue.apply(WATCH, (0..events).map(|n| put(n, 20 + n)).collect());
    queue.apply(WATCH, vec![put(events, 20 + events)]);
    assert!(!queue.finish_list(number, list(10, &[])));
    assert!(!queue.state.lock().live);
    let number = queue.begin_list();
    assert!(queue.finish_list(number, list(30, &[(3, 23)])));
    assert_eq!(order(&queue), [3]);
}

#[test]
fn events_of_a_watch_that_was_given_up_do_not_count() {
    let queue = queue();
    let number = queue.begin_list();
    assert!(queue.finish_list(number, list(10, &[(1, 9)])));
    queue.down();
    queue.followed_by(WATCH + 1);
    let number = queue.begin_list();
    queue.apply(WATCH, vec![delete(1, 1_000)]);
    assert!(queue.finish_list(number, list(5, &[(1, 4)])));
    queue.apply(WATCH, vec![delete(1, 1_001)]);
    queue.apply(WATCH + 1, vec![put(2, 6)]);
    assert_eq!(order(&queue), [1, 2]);
}
