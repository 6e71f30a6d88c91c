//! What a run does: its situation, its clients and its faults.

use std::time::Duration;

use super::{Settings, client_faults, situation::Situation};
use crate::{client::Role, faults, world::Backend};

/// The least time of faults, and of the clients after the last fault, in
/// situations with effects that take seconds.
const FAULTS_FOR_MIN: Duration = Duration::from_secs(7);
const CALM_FOR_MIN: Duration = Duration::from_secs(8);
/// Time for more than one failover.
const FAILOVERS_FOR_MIN: Duration = Duration::from_secs(15);
/// Time for long queues to form.
const WAITERS_QUIET_FOR: Duration = Duration::from_secs(2);
const WAITERS_CALM_FOR_MIN: Duration = Duration::from_secs(11);
/// The number of fronts; none on memory.
pub(super) const FRONTS: usize = 2;
/// How many random clients there are in each process beside others.
const RANDOM_BESIDE: u32 = 6;
/// How many of 100 faults are among those that the situation prefers.
const PREFERRED_PERCENT: u8 = 60;

/// In how many of 100 runs all locks are exclusive.
const EXCLUSIVE_PERCENT: u8 = 30;
/// How many of 100 acquisitions are shared in the others.
const READERS: [u32; 4] = [15, 40, 70, 90];

/// A client process beside those of the usual mix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extra {
    /// What its clients do.
    pub role: Role,
    /// How many there are.
    pub clients: u32,
    /// How many resources they use.
    pub resources: u32,
    /// The TTL that keepers ask for.
    pub ttl_ms: u64,
    /// How long a wait of a crowd may last.
    pub wait_ms: u64,
}

/// The plan of a round.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of all choices.
    pub seed: u64,
    /// The prefix of every resource's name.
    pub name: String,
    /// The situation of its clients.
    pub situation: Situation,
    /// Client processes of the usual mix.
    pub client_processes: u32,
    /// Clients in each.
    pub clients: u32,
    /// How many resources of each kind those use at a time.
    pub resources: u32,
    /// How many of 100 acquisitions are shared.
    pub readers: u32,
    /// Whether the locks are watched, if the store supports it.
    pub is_watched: bool,
    /// The other client processes.
    pub extras: Vec<Extra>,
    /// The names of faults that may be injected.
    pub faults: Vec<&'static str>,
    /// The faults that are injected more often.
    pub preferred: Vec<&'static str>,
    /// How long the clients run without faults at first.
    pub quiet_for: Duration,
    /// How long faults are injected then.
    pub faults_for: Duration,
    /// How long the clients continue afterwards.
    pub calm_for: Duration,
}

impl Plan {
    /// The plan of this seed, with every fault that is not left out.
    #[must_use]
    pub fn of(settings: &Settings, seed: u64) -> Self {
        // Not the sequence that faults are drawn from.
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x5eed_0f91);
        let drawn = Situation::draw(settings.backend, &mut rng);
        let situation = settings.situation.unwrap_or(drawn);
        let extras = extras(situation, settings, &mut rng);
        let mut faults = faults::catalogue(settings.backend);
        faults.extend(client_faults::FAULTS);
        if extras.iter().any(|extra| extra.role == Role::Crowd) {
            faults.extend(client_faults::CROWD_FAULTS);
        }
        if extras.iter().any(|extra| extra.role == Role::Front) {
            faults.extend(faults::of_fronts(settings.backend));
        }
        faults.retain(|name| !settings.without.iter().any(|without| without == name));
        let on_backend = faults::preferred(settings.backend);
        let preferred = situation.prefers().iter().copied().chain(on_backend);
        let preferred = preferred.filter(|name| faults.contains(name)).collect();
        let mut plan = Self {
            seed,
            name: String::new(),
            situation,
            client_processes: settings.client_processes,
            clients: settings.clients,
            resources: 8,
            readers: if settings.backend.is_shared() { readers(situation, seed) } else { 0 },
            is_watched: fastrand::Rng::with_seed(seed ^ 0x0077_a7c4).bool(),
            extras,
            faults,
            preferred,
            quiet_for: Duration::ZERO,
            faults_for: settings.faults_for,
            calm_for: settings.calm_for,
        };
        match situation {
            Situation::Usual => {}
            Situation::Few => {
                plan.client_processes = 0;
                plan.faults_for = plan.faults_for.max(FAULTS_FOR_MIN);
            }
            // Few faults, and time to see who still waits or was overtaken.
            Situation::Waiters | Situation::Readers => {
                plan.clients = plan.clients.min(RANDOM_BESIDE);
                plan.quiet_for = WAITERS_QUIET_FOR;
                plan.calm_for = plan.calm_for.max(WAITERS_CALM_FOR_MIN);
            }
            _ => {
                plan.clients = plan.clients.min(RANDOM_BESIDE);
                plan.faults_for = plan.faults_for.max(FAULTS_FOR_MIN);
                plan.calm_for = plan.calm_for.max(CALM_FOR_MIN);
            }
        }
        if settings.backend.fails_over() {
            plan.faults_for = plan.faults_for.max(FAILOVERS_FOR_MIN);
        }
        plan
    }

    /// How many fronts its world needs.
    pub(super) fn fronts(&self) -> usize {
        if self.situation == Situation::Front { FRONTS } else { 0 }
    }

    /// The next fault.
    pub(super) fn draw_fault(&self, rng: &mut fastrand::Rng) -> Option<&'static str> {
        let preferred = rng.u8(..100) < PREFERRED_PERCENT && !self.preferred.is_empty();
        rng.choice(if preferred { &self.preferred } else { &self.faults }).copied()
    }
}

/// From a separate sequence, so that the situation is the same whether the run has readers
/// or not.
fn readers(situation: Situation, seed: u64) -> u32 {
    let mut rng = fastrand::Rng::with_seed(seed ^ 0x4ead_e425);
    if situation != Situation::Readers && rng.u8(..100) < EXCLUSIVE_PERCENT {
        return 0;
    }
    READERS[rng.usize(..READERS.len())]
}

fn extras(situation: Situation, settings: &Settings, rng: &mut fastrand::Rng) -> Vec<Extra> {
    let extra = |role, clients, resources| Extra {
        role,
        clients,
        resources,
        ttl_ms: 6_000,
        wait_ms: 5_000,
    };
    match situation {
        Situation::Usual => Vec::new(),
        Situation::Sharing => vec![extra(Role::Sharing, rng.u32(8..24), rng.u32(4..12))],
        Situation::Lasting => vec![extra(Role::Lasting, rng.u32(8..16), 6)],
        Situation::Keepers => {
            // Sometimes many.
            let (clients, ttls_ms): (u32, &[u64]) = if rng.u8(..4) == 0 {
                (rng.u32(1_000..3_500), &[6_000, 9_000, 12_000])
            } else {
                (rng.u32(60..600), &[6_000, 9_000, 12_000, 15_000])
            };
            let ttl_ms = ttls_ms[rng.usize(..ttls_ms.len())];
            let mut all = vec![Extra { ttl_ms, ..extra(Role::Keepers, clients, 1) }];
            // A busy machine cannot serve others beside thousands of keepers.
            if clients < 1_000 {
                let resources = rng.u32(1..4);
                all.push(extra(Role::Namesakes, resources * rng.u32(10..40), resources));
            }
            all
        }
        Situation::Waiters => {
            // For a waiter that lost its place, there must be a later one that is served.
            let resources = rng.u32(2..6);
            vec![extra(Role::Waiters, resources * rng.u32(4..7), resources)]
        }
        Situation::Crowd => {
            let clients =
                if rng.u8(..4) == 0 { rng.u32(1_000..4_000) } else { rng.u32(100..600) };
            // Few long queues, or many short ones.
            let resources = match rng.u8(..3) {
                0 => rng.u32(2..6),
                1 => clients.div_ceil(20).max(2),
                _ => clients.div_ceil(2),
            };
            let wait_ms = [1_000, 4_000, 15_000][rng.usize(..3)];
            let crowd = Extra { wait_ms, ..extra(Role::Crowd, clients, resources) };
            vec![crowd, extra(Role::Visitors, 12, resources)]
        }
        Situation::Few => {
            vec![extra(Role::Few, rng.u32(5..9), rng.u32(3..7))]
        }
        Situation::Foreign if settings.backend == Backend::Redis => {
            vec![extra(Role::Foreign, rng.u32(8..20), rng.u32(3..9))]
        }
        Situation::Foreign => Vec::new(),
        Situation::Front if settings.backend == Backend::Memory => Vec::new(),
        Situation::Front => {
            let (clients, resources) = (rng.u32(10..30), rng.u32(3..9));
            let mut all = vec![extra(Role::Front, clients, resources)];
            // They lock some of the same resources.
            if settings.backend == Backend::Redis && rng.bool() {
                all.push(extra(Role::Foreign, rng.u32(4..10), resources));
            }
            all
        }
        Situation::Readers => {
            let groups = rng.u32(2..5);
            vec![
                extra(Role::Meeting, groups * rng.u32(4..9), groups),
                extra(Role::Waiters, groups * rng.u32(4..7), groups),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    fn settings(backend: Backend) -> Settings {
        Settings {
            backend,
            leasehold: "leasehold".into(),
            etcd: "etcd".into(),
            program: "leasehold-reliability".into(),
            processes: 3,
            client_processes: 3,
            clients: 32,
            pause_ms_max: 12,
            faults_for: Duration::from_secs(4),
            calm_for: Duration::from_secs(2),
            without: vec!["etcd-restored".into()],
            situation: None,
            folder: ".".into(),
        }
    }

    #[test]
    fn every_situation_of_a_backend_is_drawn_and_the_seed_repeats_it() {
        for backend in Backend::ALL {
            let settings = settings(backend);
            let mut drawn: Vec<_> =
                (0..400).map(|seed| Plan::of(&settings, seed).situation).collect();
            let again: Vec<_> =
                (0..400).map(|seed| Plan::of(&settings, seed).situation).collect();
            assert_eq!(drawn, again);
            drawn.sort_unstable();
            drawn.dedup();
            let possible = Situation::value_variants()
                .iter()
                .copied()
                .filter(|situation| situation.weight(backend) > 0);
            assert_eq!(drawn, possible.collect::<Vec<_>>());
        }
    }

    #[test]
    fn some_runs_have_exclusive_locks_only_and_others_readers_of_every_share() {
        let settings = settings(Backend::Redis);
        let mut shares: Vec<_> =
            (0..400).map(|seed| Plan::of(&settings, seed).readers).collect();
        shares.sort_unstable();
        shares.dedup();
        assert_eq!(shares, [0, 15, 40, 70, 90]);
    }

    #[test]
    fn a_fault_that_is_left_out_is_never_drawn() {
        let settings = Settings { situation: Some(Situation::Few), ..settings(Backend::Etcd) };
        let plan = Plan::of(&settings, 1);
        let mut rng = fastrand::Rng::with_seed(1);
        assert!((0..1_000).all(|_| plan.draw_fault(&mut rng) != Some("etcd-restored")));
    }
}
