//! The situation of a run's clients, and the faults that suit it.

use clap::ValueEnum;

use crate::world::Backend;

/// The clients of a run besides the usual mix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub enum Situation {
    /// Nothing else.
    #[default]
    Usual,
    /// Clients share grants over several leasehold processes.
    Sharing,
    /// Like `Sharing`, with locks of hours that are unlocked at once.
    Lasting,
    /// Hundreds of locks are held and renewed while servers stand still.
    Keepers,
    /// Waits of up to 22 s.
    Waiters,
    /// Hundreds or thousands of waits of one process, which dies or stands still.
    Crowd,
    /// Few clients of few resources, so that a restored server repeats revisions.
    Few,
    /// Clients of Redis that do not know leasehold.
    Foreign,
    /// Readers that wait for each other while they hold, and writers that give up waiting
    /// for them.
    Readers,
    /// Clients of Redis that lock through fronts, which memory does not have.
    Front,
}

impl Situation {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Usual => "usual",
            Self::Sharing => "sharing",
            Self::Lasting => "lasting",
            Self::Keepers => "keepers",
            Self::Waiters => "waiters",
            Self::Crowd => "crowd",
            Self::Few => "few",
            Self::Foreign => "foreign",
            Self::Readers => "readers",
            Self::Front => "front",
        }
    }

    /// How often it is drawn, of 100.
    pub(super) fn weight(self, backend: Backend) -> u32 {
        match (self, backend) {
            (Self::Usual, Backend::Memory) => 70,
            (Self::Usual, _) => 32,
            (Self::Sharing, Backend::Etcd) => 14,
            (Self::Sharing, _) => 8,
            (Self::Lasting, Backend::Etcd) => 8,
            (Self::Lasting, Backend::Redis) => 2,
            (Self::Few, Backend::Etcd) => 8,
            (Self::Foreign, Backend::Redis) => 14,
            (Self::Lasting | Self::Few | Self::Foreign, _) | (Self::Front, Backend::Memory) => {
                0
            }
            // It has no shared locks.
            (Self::Readers, Backend::RedisCluster) => 0,
            (Self::Keepers | Self::Crowd, Backend::Memory) => 7,
            (Self::Keepers | Self::Crowd, _) => 14,
            (Self::Waiters, Backend::Memory) => 8,
            (Self::Waiters | Self::Readers | Self::Front, _) => 12,
        }
    }

    pub(super) fn draw(backend: Backend, rng: &mut fastrand::Rng) -> Self {
        let all: u32 = Self::value_variants().iter().map(|it| it.weight(backend)).sum();
        let mut left = rng.u32(..all.max(1));
        for situation in Self::value_variants() {
            let weight = situation.weight(backend);
            if left < weight {
                return *situation;
            }
            left -= weight;
        }
        Self::Usual
    }

    /// The faults that it prefers.
    pub(super) fn prefers(self) -> &'static [&'static str] {
        match self {
            Self::Usual => &[],
            Self::Lasting => &["leasehold-restarted-in-turn"],
            Self::Sharing => &[
                "etcd-leader-suspended",
                "etcd-leader-killed",
                "etcd-used-follower-killed",
                "leasehold-machine-suspended",
            ],
            Self::Keepers => &[
                "redis-suspended",
                "redis-failed-over",
                "redis-out-of-memory",
                "etcd-all-suspended",
                "etcd-leader-suspended",
                "etcd-used-follower-suspended",
                "etcd-leader-killed",
                "etcd-out-of-space",
                "network-cut",
                "network-partitioned",
                "network-peer-vanished",
                "leasehold-machine-suspended",
                "leasehold-restarted-in-turn",
            ],
            Self::Waiters => &[
                "redis-suspended",
                "redis-out-of-memory",
                "redis-failed-over",
                "redis-flushed",
                "etcd-all-suspended",
                "etcd-used-follower-suspended",
                "etcd-used-follower-killed",
                "leasehold-suspended",
                "leasehold-vanished",
                "network-partitioned",
                "network-peer-vanished",
            ],
            Self::Crowd => &[
                "crowd-killed",
                "crowd-suspended",
                "crowd-killed-with-leasehold",
                "crowd-killed-with-leasehold",
                "redis-suspended",
                "etcd-all-suspended",
                "leasehold-suspended",
                "leasehold-vanished",
            ],
            Self::Few => &["etcd-restored"],
            Self::Foreign => &["network-cut", "redis-suspended"],
            Self::Readers => &[
                "client-killed",
                "leasehold-killed",
                "etcd-session-revoked",
                "etcd-lease-revoked",
                "network-cut",
                "redis-suspended",
            ],
            Self::Front => &[
                "front-killed",
                "front-suspended",
                "front-restarted",
                "front-connections-reset",
                "front-connections-reset",
                "front-connections-closed",
                "front-refused",
                "front-cut-in-request",
                "front-cut-in-reply",
                "front-requests-lost",
                "front-replies-lost",
                "front-replies-lost",
                "front-replies-late",
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::client_faults, *};
    use crate::faults;

    #[test]
    fn every_preferred_fault_is_in_a_catalogue() {
        let mut known: Vec<_> =
            Backend::ALL.iter().flat_map(|backend| faults::catalogue(*backend)).collect();
        known.extend(Backend::ALL.into_iter().flat_map(faults::of_fronts));
        known.extend(client_faults::CROWD_FAULTS.iter().chain(client_faults::FAULTS));
        for situation in Situation::value_variants() {
            for name in situation.prefers() {
                assert!(known.contains(name), "{name}");
            }
        }
    }
}
