//! What each fault may do to grants and replies.

use crate::{
    faults::{Injected, Voids},
    slots::slot_of,
};

impl Injected {
    /// Whether it may have ended the grant of a resource.
    pub(crate) fn voids_grant_of(&self, resource: &str) -> bool {
        match &self.voids {
            // What a promotion has lost depends on the call.
            Voids::Nothing | Voids::AnsweredSince(_) => false,
            Voids::GrantOf(of) => of == resource,
            Voids::Grants | Voids::GrantsAndTokens => true,
        }
    }

    /// Whether a resource is in one of its slots.
    pub(crate) fn concerns(&self, resource: &str) -> bool {
        let slot = slot_of(resource.as_bytes());
        self.slots.as_ref().is_none_or(|all| all.iter().any(|slots| slots.contains(&slot)))
    }

    /// Whether ended grants may reappear after it. Only an older data set can bring them
    /// back; flushed data, or data lost with its process, stay lost.
    pub(crate) fn brings_back(&self) -> bool {
        self.name.starts_with("etcd-restored")
    }

    /// Whether the backend answers during it, but refuses to store data.
    pub(crate) fn refuses_writes(&self) -> bool {
        ["redis-out-of-memory", "etcd-out-of-space"].contains(&&*self.name)
    }

    /// Whether only a follower was lost, so that there was no election.
    pub(crate) fn is_follower_loss(&self) -> bool {
        self.name.starts_with("etcd-used-follower-")
    }

    /// Whether a process may hear of a new master only after it.
    pub(crate) fn delays_notices(&self) -> bool {
        ["network-", "leasehold-suspended", "leasehold-machine-", "front-suspended"]
            .iter()
            .any(|begin| self.name.starts_with(begin))
    }

    /// Whether it ends a leasehold process.
    pub(crate) fn ends_processes(&self) -> bool {
        ["leasehold-killed", "leasehold-vanished", "crowd-killed-with-leasehold"]
            .contains(&&*self.name)
            || self.name.starts_with("leasehold-restarted")
    }

    /// Whether it may lose or delay a reply of the backend to leasehold, because one of them
    /// or the network between them stopped.
    pub(crate) fn loses_replies(&self) -> bool {
        [
            "network-",
            "leasehold-",
            "crowd-killed-with-leasehold",
            "etcd-leader-",
            "etcd-member-",
            "etcd-used-follower-",
            "etcd-restored",
            "etcd-restarted-in-turn",
            "etcd-all-",
            "etcd-out-of-space",
            "redis-restarted",
            "redis-suspended",
            "redis-failed-over",
            "redis-client",
            "sentinel-master-",
            "sentinel-failover-",
            "sentinel-replicas-",
            "cluster-",
            "replica-promoted",
        ]
        .iter()
        .any(|begin| self.name.starts_with(begin))
    }

    /// Whether a grant may outlive its TTL: a clock that is set back makes Redis keep all
    /// grants longer, and another fault removes the expiry of one grant.
    pub(crate) fn prolongs(&self, resource: &str) -> bool {
        let of = || self.detail.rsplit_once(", taken back").map(|(of, _)| of);
        self.name == "redis-clock-back"
            || (self.name == "redis-holder-without-expiry" && of() == Some(resource))
    }
}
