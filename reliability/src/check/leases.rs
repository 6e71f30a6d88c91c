//! The leases that etcd may be left with.

use std::collections::HashSet;

use super::{environment::Environment, pace::Pace};
use crate::{
    faults::Injected,
    history::{Call, Granted, Invocation, Operation, Outcome},
    world::Backend,
};

/// The shortest TTL whose lease counts as left.
const TTL_NS_MIN: u64 = 60_000_000_000;

/// How many leases may be left to their TTL: those of grants that another leasehold process
/// than their own may have ended by a call whose reply was lost (docs/guarantees.md).
#[must_use]
pub fn leases_left_max(
    backend: Backend,
    operations: &[Operation],
    faults: &[Injected],
) -> usize {
    if backend != Backend::Etcd {
        return 0;
    }
    let sent: Vec<_> = operations.iter().filter(|operation| operation.was_sent()).collect();
    let pace = Pace::of(&sent);
    let environment = Environment { backend, faults, pace: &pace, losses: &[] };
    let is_lossy = |end: &&&Operation| environment.loses_replies(end);
    let ends: Vec<_> = sent.iter().filter(is_lossy).map(|end| &end.invocation).collect();
    let may_have_ended = |made: &Invocation, granted: &Granted| {
        let mut elsewhere =
            ends.iter().filter(|end| end.resource == made.resource && end.via != made.via);
        elsewhere.any(|end| match &end.call {
            Call::Unlock { lock_id } => *lock_id == granted.lock_id,
            Call::End { grant_id } => *grant_id == granted.grant_id,
            Call::Force | Call::EndAll => true,
            _ => false,
        })
    };
    let left: HashSet<_> = sent
        .iter()
        .filter_map(|operation| match operation.known() {
            Some(Outcome::Granted(granted)) => Some((&operation.invocation, granted)),
            _ => None,
        })
        .filter(|(made, granted)| granted.ttl_ns >= TTL_NS_MIN && may_have_ended(made, granted))
        .map(|(_, granted)| (&granted.lock_id, granted.token))
        .collect();
    left.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        check::story::{Story, granted, on, tries, unlocks},
        faults::Voids,
    };

    fn left(story: &Story) -> usize {
        leases_left_max(story.backend, &story.operations, &story.faults)
    }

    /// A grant of process 0, and its unlock elsewhere while replies are lost.
    fn unlocked_elsewhere() -> Story {
        let Outcome::Granted(granted) = granted("a", 1) else { unreachable!() };
        let lasting = Outcome::Granted(Granted { ttl_ns: TTL_NS_MIN, ..granted });
        let mut story = on(Backend::Etcd)
            .call(0, 1, tries(), lasting)
            .call(10, 25, unlocks("a"), Outcome::Unlocked)
            .fault_called("network-replies-lost", 20, 30, Voids::Nothing);
        story.operations[0].invocation.via = Some(0);
        story.operations[1].invocation.via = Some(1);
        story
    }

    #[test]
    fn an_unlock_elsewhere_whose_reply_may_be_lost_may_leave_a_lease() {
        assert_eq!(left(&unlocked_elsewhere()), 1);
    }

    #[test]
    fn nothing_else_leaves_a_lease() {
        fn unlock(story: &mut Story) -> &mut Operation {
            &mut story.operations[1]
        }
        let but_for = |change: fn(&mut Story)| {
            let mut story = unlocked_elsewhere();
            change(&mut story);
            left(&story)
        };
        assert_eq!(but_for(|story| story.faults.clear()), 0, "its reply was not lost");
        assert_eq!(but_for(|story| unlock(story).invocation.via = Some(0)), 0, "its own");
        assert_eq!(but_for(|story| unlock(story).invocation.call = unlocks("b")), 0);
        assert_eq!(but_for(|story| story.backend = Backend::Redis), 0);
        let short_ttl = |story: &mut Story| {
            story.operations[0].completion = Some((1_000_000, granted("a", 1)));
        };
        assert_eq!(but_for(short_ttl), 0);
    }
}
