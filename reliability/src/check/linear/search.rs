//! The search for an order of steps.

use std::{cmp::Reverse, collections::HashSet, fmt::Debug, hash::Hash};

/// How many partial orders are tried before the search gives up.
const LOOKS_MAX: usize = 200_000;
/// How much memory the visited partial orders may take, in words of 8 bytes. It limits
/// the search of long histories.
const WORDS_MAX: usize = 8_000_000;
/// How many optional steps may come between two required ones, besides the ends of all
/// grants that hold. Four allow for a renewal, its expiry, a grant and its end, all unknown
/// to any client.
const FREE_STEPS_MAX: usize = 4;
/// How many states are reached by optional steps before one required step, and how many such
/// steps are tried in all, until the search is given up.
const REACHED_MAX: usize = 2_000;
const TRIED_MAX: usize = 5_000_000;

/// Something that happened, or may have happened, at one instant.
#[derive(Clone, Debug)]
pub(super) struct Step<K> {
    /// What happened.
    pub(super) kind: K,
    /// The earliest time.
    pub(super) from_ns: u64,
    /// The latest time; `u64::MAX` for none.
    pub(super) until_ns: u64,
    /// Whether it may not have happened at all.
    pub(super) is_optional: bool,
    /// The call that it belongs to.
    pub(super) call: Option<u64>,
}

/// The object that the steps act on.
pub(super) trait Object: Clone + Eq + Hash + Debug {
    type Kind;

    /// The state after the step; `None` if the step cannot happen in this state. Whatever a
    /// required step changes must not depend on the state before, and of two steps that
    /// change different parts of the state either may come first.
    fn step(&self, kind: &Self::Kind) -> Option<Self>;

    /// Whether the step only removes something that another step added, and can be needed
    /// for nothing else.
    fn is_end(kind: &Self::Kind) -> bool;

    /// Whether the step changes no state in which it can happen.
    fn only_looks(kind: &Self::Kind) -> bool;
}

/// The result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Result {
    /// There is an order.
    Found,
    /// There is none. The longest partial order ends where this step had to follow.
    None { stuck_at: usize },
    /// The search gave up.
    LimitReached,
}

/// The steps that are in order, and the state after them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place<S> {
    state: S,
    done: Vec<u64>,
}

/// The states that optional steps reached.
struct Reached {
    /// How many steps were tried.
    tried: usize,
    /// Whether none were left out.
    all: bool,
}

/// A partial order, and what may come next.
struct Frame<S> {
    place: Place<S>,
    /// How many of the required steps are in order.
    count: usize,
    /// The latest `from_ns` of the steps in order: a step whose `until_ns` is before it
    /// cannot follow.
    latest_from_ns: u64,
    /// What may come next; the last is tried first.
    next: Vec<Vec<usize>>,
}

/// Looks for an order of `steps` (by their `from_ns`) that keeps every step
/// within its time and starts from `initial`.
///
/// An optional step without a latest time is placed only right before a step with one that
/// needs it. This loses no solution: in any order it can be moved to such a step, or
/// dropped if there is none.
pub(super) fn search<S: Object>(initial: &S, steps: &[Step<S::Kind>]) -> Result {
    let required = steps.iter().filter(|step| !step.is_optional).count();
    let looks_max = LOOKS_MAX.min(WORDS_MAX / steps.len().div_ceil(64).max(1));
    let begin = Place { state: initial.clone(), done: vec![0; steps.len().div_ceil(64)] };
    let mut seen = HashSet::new();
    let (mut farthest, mut stuck_at, mut looks) = (0, 0, 0);
    let mut reached = Reached { tried: 0, all: true };
    let mut stack = vec![frame(steps, begin, 0, 0, &mut reached)];
    while let Some(top) = stack.last_mut() {
        if top.count == required {
            return Result::Found;
        }
        if top.count >= farthest {
            farthest = top.count;
            stuck_at = most_pressing(steps, &top.place.done).unwrap_or(stuck_at);
        }
        let Some(indices) = top.next.pop() else {
            stack.pop();
            continue;
        };
        let (mut place, mut count) = (top.place.clone(), top.count);
        let mut latest_from_ns = top.latest_from_ns;
        for index in indices {
            let Some(state) = place.state.step(&steps[index].kind) else { break };
            place.state = state;
            set(&mut place.done, index);
            count += usize::from(!steps[index].is_optional);
            latest_from_ns = latest_from_ns.max(steps[index].from_ns);
        }
        if !seen.insert(place.clone()) {
            continue;
        }
        looks += 1;
        if looks > looks_max || reached.tried > TRIED_MAX {
            return Result::LimitReached;
        }
        let next = frame(steps, place, count, latest_from_ns, &mut reached);
        stack.push(next);
    }
    if reached.all { Result::None { stuck_at } } else { Result::LimitReached }
}

/// Adds the steps that need no choice, and lists the choices after them.
fn frame<S: Object>(
    steps: &[Step<S::Kind>],
    mut place: Place<S>,
    mut count: usize,
    mut latest_from_ns: u64,
    reached: &mut Reached,
) -> Frame<S> {
    loop {
        let candidates = candidates(steps, &place.done, latest_from_ns);
        let idle = candidates.iter().copied().find(|&index| {
            changes_nothing(steps, &place.state, index)
                && !makes_late(steps, &candidates, index)
        });
        let Some(index) = idle else {
            let next = choices(steps, &place.state, &candidates, reached);
            return Frame { place, count, latest_from_ns, next };
        };
        set(&mut place.done, index);
        count += 1;
        latest_from_ns = latest_from_ns.max(steps[index].from_ns);
    }
}

/// Whether the step is required, possible now, and changes nothing. Such a step can come
/// at once: in any order it can be moved to here, unless an optional step would then be
/// too late.
fn changes_nothing<S: Object>(steps: &[Step<S::Kind>], state: &S, index: usize) -> bool {
    let step = &steps[index];
    !step.is_optional && S::only_looks(&step.kind) && state.step(&step.kind).is_some()
}

fn makes_late<K>(steps: &[Step<K>], candidates: &[usize], index: usize) -> bool {
    candidates
        .iter()
        .any(|&other| steps[other].is_optional && steps[other].until_ns < steps[index].from_ns)
}

fn choices<S: Object>(
    steps: &[Step<S::Kind>],
    state: &S,
    candidates: &[usize],
    reached: &mut Reached,
) -> Vec<Vec<usize>> {
    let is_free = |index: usize| steps[index].is_optional && steps[index].until_ns == u64::MAX;
    let (free, bound): (Vec<_>, Vec<_>) =
        candidates.iter().copied().partition(|&index| is_free(index));
    let mut choices = Vec::new();
    for &index in &bound {
        match state.step(&steps[index].kind) {
            Some(after) if steps[index].is_optional && after == *state => {}
            Some(_) => choices.push(vec![index]),
            None => choices.extend(made_possible(steps, state, &free, index, reached)),
        }
    }
    // The last is tried first: a required step, with few optional ones, that ends soon.
    choices.sort_by_key(|choice| {
        let last = choice.last().map_or(0, |&index| index);
        Reverse((steps[last].is_optional, choice.len(), steps[last].until_ns))
    });
    choices
}

/// The sequences of optional steps after which the step is possible, with the step.
fn made_possible<S: Object>(
    steps: &[Step<S::Kind>],
    state: &S,
    free: &[usize],
    index: usize,
    reached: &mut Reached,
) -> Vec<Vec<usize>> {
    let mut ways = Vec::new();
    let mut add = |state: &S, way: &[usize]| {
        if state.step(&steps[index].kind).is_some() {
            ways.push(way.iter().copied().chain([index]).collect());
        }
    };
    let mut seen = HashSet::from([state.clone()]);
    let mut latest: Vec<(S, Vec<usize>)> = vec![(state.clone(), Vec::new())];
    // One after the other, the ends of many grants would be too many steps.
    let (ended, way) = all_ended(steps, state, free);
    if seen.insert(ended.clone()) {
        add(&ended, &way);
        latest.push((ended, way));
    }
    for _ in 0..FREE_STEPS_MAX {
        let mut further = Vec::new();
        for (state, way) in &latest {
            for &step in free.iter().filter(|step| !way.contains(step)) {
                reached.tried += 1;
                let Some(after) = state.step(&steps[step].kind) else { continue };
                if seen.len() >= REACHED_MAX || reached.tried > TRIED_MAX {
                    reached.all = false;
                    return ways;
                }
                if !seen.insert(after.clone()) {
                    continue;
                }
                let mut way = way.clone();
                way.push(step);
                add(&after, &way);
                further.push((after, way));
            }
        }
        latest = further;
    }
    ways
}

/// The state after every end that is possible, and those steps.
fn all_ended<S: Object>(steps: &[Step<S::Kind>], state: &S, free: &[usize]) -> (S, Vec<usize>) {
    let (mut ended, mut way) = (state.clone(), Vec::new());
    for &step in free.iter().filter(|&&step| S::is_end(&steps[step].kind)) {
        if let Some(after) = ended.step(&steps[step].kind) {
            ended = after;
            way.push(step);
        }
    }
    (ended, way)
}

/// The steps before which no other step has to come.
fn candidates<K>(steps: &[Step<K>], done: &[u64], latest_from_ns: u64) -> Vec<usize> {
    let mut first_end_ns = u64::MAX;
    let mut candidates = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        if step.from_ns > first_end_ns {
            break;
        }
        if is_set(done, index) {
            continue;
        }
        if !step.is_optional {
            first_end_ns = first_end_ns.min(step.until_ns);
        }
        if step.until_ns >= latest_from_ns {
            candidates.push(index);
        }
    }
    candidates.retain(|&index| steps[index].from_ns <= first_end_ns);
    candidates
}

fn most_pressing<K>(steps: &[Step<K>], done: &[u64]) -> Option<usize> {
    steps
        .iter()
        .enumerate()
        .filter(|(index, step)| !step.is_optional && !is_set(done, *index))
        .min_by_key(|(_, step)| step.until_ns)
        .map(|(index, _)| index)
}

fn is_set(done: &[u64], index: usize) -> bool {
    done[index / 64] & (1 << (index % 64)) != 0
}

fn set(done: &mut [u64], index: usize) {
    done[index / 64] |= 1 << (index % 64);
}

#[cfg(test)]
mod tests;
