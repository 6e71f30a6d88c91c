//! The commands of lock libraries.

use leasehold_testkit::lock_scripts as scripts;

/// How a library takes a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// `SET key value NX PX milliseconds`.
    Milliseconds,
    /// `SET key value EX seconds NX`.
    Seconds,
    /// A script with the value and the TTL.
    Script(&'static str),
    /// A script with the value, its length and the TTL.
    WithLength(&'static str),
}

/// How a library renews a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renew {
    Never,
    /// `SET key value XX PX milliseconds`.
    Set,
    /// A script with the value and the TTL.
    Script(&'static str),
    /// Like `Script`, with `1`, so that the TTL is replaced instead of prolonged.
    Replacing(&'static str),
}

/// What a script that releases a lock returns if the value does not hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The same reply whether another value or none holds it.
    Same,
    /// `held` if another value holds it, -1 if none does.
    Distinguishes { held: i64 },
}

/// How a library finds its scripts on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calling {
    /// `EVAL` each time.
    Text,
    /// `EVALSHA`, and `EVAL` if that is not known.
    Digest,
    /// `EVALSHA`, and `SCRIPT LOAD` before it is called again if it is not known.
    Loading,
}

/// A library, by its commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Library {
    pub(super) take: Take,
    pub(super) renew: Renew,
    pub(super) release: &'static str,
    pub(super) missing: Missing,
    pub(super) calling: Calling,
    /// Whether it also releases after a refusal.
    pub(super) releases_refused: bool,
    pub(super) is_resp3: bool,
}

/// Dapr's lock.redis, redis-py, redsync, redislock, node-redlock, Spring Integration, ShedLock.
pub(super) const LIBRARIES: [Library; 7] = [
    Library {
        take: Take::Seconds,
        renew: Renew::Never,
        release: scripts::DAPRD_UNLOCK,
        missing: Missing::Distinguishes { held: -2 },
        calling: Calling::Text,
        releases_refused: false,
        is_resp3: true,
    },
    Library {
        take: Take::Milliseconds,
        renew: Renew::Replacing(scripts::REDIS_PY_EXTEND),
        release: scripts::REDIS_PY_RELEASE,
        missing: Missing::Same,
        calling: Calling::Loading,
        releases_refused: false,
        is_resp3: true,
    },
    Library {
        take: Take::Milliseconds,
        renew: Renew::Script(scripts::RENEW),
        release: scripts::REDSYNC_UNLOCK,
        missing: Missing::Distinguishes { held: 0 },
        calling: Calling::Digest,
        releases_refused: true,
        is_resp3: true,
    },
    Library {
        take: Take::WithLength(scripts::REDISLOCK_OBTAIN),
        renew: Renew::Script(scripts::RENEW),
        release: scripts::RELEASE,
        missing: Missing::Same,
        calling: Calling::Digest,
        releases_refused: false,
        is_resp3: true,
    },
    Library {
        take: Take::Script(scripts::NODE_REDLOCK_ACQUIRE),
        renew: Renew::Script(scripts::NODE_REDLOCK_EXTEND),
        release: scripts::NODE_REDLOCK_RELEASE,
        missing: Missing::Same,
        calling: Calling::Digest,
        releases_refused: true,
        is_resp3: false,
    },
    Library {
        take: Take::Script(scripts::SPRING_OBTAIN),
        renew: Renew::Script(scripts::SPRING_RENEW),
        release: scripts::SPRING_UNLOCK,
        missing: Missing::Same,
        calling: Calling::Digest,
        releases_refused: false,
        is_resp3: true,
    },
    Library {
        take: Take::Milliseconds,
        renew: Renew::Set,
        release: scripts::RELEASE,
        missing: Missing::Same,
        calling: Calling::Text,
        releases_refused: false,
        is_resp3: false,
    },
];
