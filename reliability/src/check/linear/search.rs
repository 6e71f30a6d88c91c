//! The search for an order.

use std::{collections::HashSet, fmt::Debug, hash::Hash};

/// How many partial orders are looked at until the history is given up.
const LOOKS_MAX: usize = 400_000;

/// Something that happened, or may have, at one instant.
#[derive(Clone, Debug)]
pub(super) struct Step<K> {
    /// What.
    pub(super) kind: K,
    /// Not before this.
    pub(super) from_ns: u64,
    /// Nor after this.
    pub(super) until_ns: u64,
    /// Whether it may also not have happened at all.
    pub(super) is_optional: bool,
    /// The call that it was.
    pub(super) call: Option<u64>,
}

/// What the steps act on.
pub(super) trait Object: Clone + Eq + Hash + Debug {
    type Kind;

    /// The state after the step, unless it cannot have happened in this one.
    fn step(&self, kind: &Self::Kind) -> Option<Self>;
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Result {
    /// There is an order.
    Found,
    /// There is none; the longest attempt ended before this step had to come.
    None { stuck_at: usize },
    /// Not found out.
    LimitReached,
}

/// What has been put in order, and what that made of the object.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place<S> {
    state: S,
    done: Vec<u64>,
}

struct Frame<S> {
    place: Place<S>,
    /// The latest begin among what was put in order: nothing that was over
    /// before it can follow.
    latest_from_ns: u64,
    /// The steps that may come next, the most pressing last.
    next: Vec<usize>,
}

/// Looks for an order of `steps` (by their `from_ns`) that keeps every step
/// within its time and starts from `initial`.
pub(super) fn search<S: Object>(initial: &S, steps: &[Step<S::Kind>]) -> Result {
    let required = steps.iter().filter(|step| !step.is_optional).count();
    let begin = Place { state: initial.clone(), done: vec![0; steps.len().div_ceil(64)] };
    let mut seen = HashSet::new();
    let (mut farthest, mut stuck_at) = (0, 0);
    let mut stack = vec![frame(steps, begin, 0)];
    let mut looks = 0;
    loop {
        let Some(top) = stack.last_mut() else { return Result::None { stuck_at } };
        let count = required_done(steps, &top.place.done);
        if count == required {
            return Result::Found;
        }
        if count >= farthest {
            farthest = count;
            stuck_at = most_pressing(steps, &top.place.done).unwrap_or(stuck_at);
        }
        let Some(index) = top.next.pop() else {
            stack.pop();
            continue;
        };
        let Some(state) = top.place.state.step(&steps[index].kind) else { continue };
        let mut place = Place { state, done: top.place.done.clone() };
        set(&mut place.done, index);
        let latest_from_ns = top.latest_from_ns.max(steps[index].from_ns);
        if !seen.insert(place.clone()) {
            continue;
        }
        looks += 1;
        if looks > LOOKS_MAX {
            return Result::LimitReached;
        }
        let next = frame(steps, place, latest_from_ns);
        stack.push(next);
    }
}

/// Puts in order what needs no choice, and lists the choices after it.
fn frame<S: Object>(
    steps: &[Step<S::Kind>],
    mut place: Place<S>,
    mut latest_from_ns: u64,
) -> Frame<S> {
    loop {
        let mut next = candidates(steps, &place.done, latest_from_ns);
        // A required step that may come now and changes nothing may as well
        // come at once: whatever order there is, it can be moved to here, if
        // that makes none of the optional ones too late.
        let idle = next.iter().copied().find(|&index| {
            let makes_late = |&other: &usize| {
                steps[other].is_optional && steps[other].until_ns < steps[index].from_ns
            };
            !steps[index].is_optional
                && !next.iter().any(makes_late)
                && place.state.step(&steps[index].kind).as_ref() == Some(&place.state)
        });
        let Some(index) = idle else {
            next.retain(|&index| {
                place
                    .state
                    .step(&steps[index].kind)
                    .is_some_and(|state| !steps[index].is_optional || state != place.state)
            });
            next.sort_by_key(|&index| {
                std::cmp::Reverse((steps[index].is_optional, steps[index].until_ns))
            });
            return Frame { place, latest_from_ns, next };
        };
        set(&mut place.done, index);
        latest_from_ns = latest_from_ns.max(steps[index].from_ns);
    }
}

/// The steps that nothing has to come before.
fn candidates<K>(steps: &[Step<K>], done: &[u64], latest_from_ns: u64) -> Vec<usize> {
    let mut first_end_ns = u64::MAX;
    for (index, step) in steps.iter().enumerate() {
        if step.from_ns > first_end_ns {
            break;
        }
        if !step.is_optional && !is_set(done, index) {
            first_end_ns = first_end_ns.min(step.until_ns);
        }
    }
    steps
        .iter()
        .enumerate()
        .take_while(|(_, step)| step.from_ns <= first_end_ns)
        .filter(|(index, step)| !is_set(done, *index) && step.until_ns >= latest_from_ns)
        .map(|(index, _)| index)
        .collect()
}

fn most_pressing<K>(steps: &[Step<K>], done: &[u64]) -> Option<usize> {
    steps
        .iter()
        .enumerate()
        .filter(|(index, step)| !step.is_optional && !is_set(done, *index))
        .min_by_key(|(_, step)| step.until_ns)
        .map(|(index, _)| index)
}

fn required_done<K>(steps: &[Step<K>], done: &[u64]) -> usize {
    steps
        .iter()
        .enumerate()
        .filter(|(index, step)| !step.is_optional && is_set(done, *index))
        .count()
}

fn is_set(done: &[u64], index: usize) -> bool {
    done[index / 64] & (1 << (index % 64)) != 0
}

fn set(done: &mut [u64], index: usize) {
    done[index / 64] |= 1 << (index % 64);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register that may be cleared by itself.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Register(u8);

    #[derive(Clone, Copy, Debug)]
    enum Kind {
        Write(u8),
        Read(u8),
        Add(u8),
    }

    impl Object for Register {
        type Kind = Kind;

        fn step(&self, kind: &Kind) -> Option<Self> {
            match *kind {
                Kind::Write(value) => Some(Self(value)),
                Kind::Read(value) => (value == self.0).then_some(*self),
                Kind::Add(value) => (self.0 < 3).then_some(Self(self.0 + value)),
            }
        }
    }

    fn step(kind: Kind, from_ns: u64, until_ns: u64, is_optional: bool) -> Step<Kind> {
        Step { kind, from_ns, until_ns, is_optional, call: None }
    }

    /// Every order, tried.
    fn by_hand(state: Register, steps: &[Step<Kind>], done: &mut Vec<usize>) -> bool {
        let rest = |done: &[usize]| (0..steps.len()).filter(|i| !done.contains(i)).collect::<Vec<_>>();
        if rest(done).iter().all(|&i| steps[i].is_optional) {
            return true;
        }
        for index in rest(done) {
            let must_wait = rest(done)
                .iter()
                .any(|&other| !steps[other].is_optional && steps[other].until_ns < steps[index].from_ns);
            let too_late = done.iter().any(|&other| steps[index].until_ns < steps[other].from_ns);
            if must_wait || too_late {
                continue;
            }
            if let Some(state) = state.step(&steps[index].kind) {
                done.push(index);
                if by_hand(state, steps, done) {
                    return true;
                }
                done.pop();
            }
        }
        false
    }

    #[test]
    fn it_finds_an_order_exactly_when_trying_every_order_does() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut found, mut none) = (0, 0);
        for _ in 0..3000 {
            let mut steps: Vec<_> = (0..rng.usize(1..8))
                .map(|_| {
                    let from_ns = rng.u64(..12);
                    let kind = match rng.u8(..5) {
                        0 => Kind::Write(rng.u8(..3)),
                        1 => Kind::Add(rng.u8(..2)),
                        _ => Kind::Read(rng.u8(..3)),
                    };
                    step(kind, from_ns, from_ns + rng.u64(..8), rng.u8(..4) == 0)
                })
                .collect();
            steps.sort_by_key(|step| step.from_ns);
            let expected = by_hand(Register(0), &steps, &mut Vec::new());
            let result = search(&Register(0), &steps);
            assert_eq!(result == Result::Found, expected, "{steps:?} gave {result:?}");
            if expected { found += 1 } else { none += 1 }
        }
        assert!(found > 300 && none > 300, "{found} and {none}: the histories are one-sided");
    }

    #[test]
    fn many_calls_at_once_are_decided() {
        let mut steps: Vec<_> =
            (0..200).map(|i| step(Kind::Write(u8::try_from(i % 3).unwrap()), i, i + 30, false)).collect();
        steps.push(step(Kind::Read(1), 240, 241, false));
        assert_eq!(search(&Register(0), &steps), Result::Found);
    }
}
