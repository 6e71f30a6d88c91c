//! The search, against trying every order.

use super::*;

/// A register.
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

    fn is_end(_: &Kind) -> bool {
        false
    }

    fn only_looks(kind: &Kind) -> bool {
        matches!(kind, Kind::Read(_))
    }
}

/// Whoever is in a set, as bits: like the readers of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Set(u8);

#[derive(Clone, Copy, Debug)]
enum Change {
    Enter(u8),
    Leave(u8),
    SeeEmpty,
    SeeInside(u8),
}

impl Object for Set {
    type Kind = Change;

    fn step(&self, change: &Change) -> Option<Self> {
        match *change {
            Change::Enter(bit) => Some(Self(self.0 | 1 << bit)),
            Change::Leave(bit) => {
                (self.0 & 1 << bit != 0).then_some(Self(self.0 & !(1 << bit)))
            }
            Change::SeeEmpty => (self.0 == 0).then_some(*self),
            Change::SeeInside(bit) => (self.0 & 1 << bit != 0).then_some(*self),
        }
    }

    fn is_end(change: &Change) -> bool {
        matches!(change, Change::Leave(_))
    }

    fn only_looks(change: &Change) -> bool {
        matches!(change, Change::SeeEmpty | Change::SeeInside(_))
    }
}

fn any_change(rng: &mut fastrand::Rng) -> Step<Change> {
    let from_ns = rng.u64(..12);
    let is_optional = rng.u8(..3) == 0;
    let kind = match rng.u8(..6) {
        0 | 1 => Change::Enter(rng.u8(..3)),
        2 | 3 => Change::Leave(rng.u8(..3)),
        4 => Change::SeeEmpty,
        _ => Change::SeeInside(rng.u8(..3)),
    };
    let has_no_end = is_optional && rng.bool();
    let until_ns = if has_no_end { u64::MAX } else { from_ns + rng.u64(..8) };
    step(kind, from_ns, until_ns, is_optional)
}

fn step<K>(kind: K, from_ns: u64, until_ns: u64, is_optional: bool) -> Step<K> {
    Step { kind, from_ns, until_ns, is_optional, call: None }
}

fn any_step(rng: &mut fastrand::Rng) -> Step<Kind> {
    let from_ns = rng.u64(..12);
    let is_optional = rng.u8(..3) == 0;
    let kind = match rng.u8(..5) {
        0 => Kind::Write(rng.u8(..3)),
        1 if is_optional => Kind::Add(rng.u8(..2)),
        _ => Kind::Read(rng.u8(..3)),
    };
    let has_no_end = is_optional && rng.bool();
    let until_ns = if has_no_end { u64::MAX } else { from_ns + rng.u64(..8) };
    step(kind, from_ns, until_ns, is_optional)
}

/// Tries every order.
fn try_every_order<S: Object>(
    state: &S,
    steps: &[Step<S::Kind>],
    done: &mut Vec<usize>,
) -> bool {
    let rest =
        |done: &[usize]| (0..steps.len()).filter(|i| !done.contains(i)).collect::<Vec<_>>();
    if rest(done).iter().all(|&i| steps[i].is_optional) {
        return true;
    }
    for index in rest(done) {
        let must_wait = rest(done).iter().any(|&other| {
            !steps[other].is_optional && steps[other].until_ns < steps[index].from_ns
        });
        let too_late = done.iter().any(|&other| steps[index].until_ns < steps[other].from_ns);
        if must_wait || too_late {
            continue;
        }
        if let Some(state) = state.step(&steps[index].kind) {
            done.push(index);
            if try_every_order(&state, steps, done) {
                return true;
            }
            done.pop();
        }
    }
    false
}

/// Compares the search with trying every order of random histories.
fn compare<S: Object>(initial: &S, any: impl Fn(&mut fastrand::Rng) -> Step<S::Kind>)
where
    S::Kind: Debug,
{
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut found, mut none) = (0, 0);
    for _ in 0..3000 {
        let mut steps: Vec<_> = (0..rng.usize(1..8)).map(|_| any(&mut rng)).collect();
        steps.sort_by_key(|step| step.from_ns);
        let expected = try_every_order(initial, &steps, &mut Vec::new());
        let result = search(initial, &steps);
        assert_eq!(result == Result::Found, expected, "{steps:?} gave {result:?}");
        if expected { found += 1 } else { none += 1 }
    }
    assert!(found > 300 && none > 300, "{found} and {none}: the histories are one-sided");
}

#[test]
fn it_finds_an_order_exactly_when_trying_every_order_does() {
    compare(&Register(0), any_step);
}

#[test]
fn it_finds_an_order_of_a_set_exactly_when_trying_every_order_does() {
    compare(&Set(0), any_change);
}

#[test]
fn many_calls_at_once_are_decided() {
    let mut steps: Vec<_> = (0..200)
        .map(|i| step(Kind::Write(u8::try_from(i % 3).unwrap()), i, i + 30, false))
        .collect();
    steps.push(step(Kind::Read(1), 240, 241, false));
    assert_eq!(search(&Register(0), &steps), Result::Found);
}
