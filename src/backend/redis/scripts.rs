//! The atomic scripts, one for each operation.
//!
//! Each is put together from the parts that it needs and the constants that Rust and Lua
//! share. Scripts have no shebang, because they must run on Redis 6.2.

use std::{fmt::Write as _, sync::LazyLock, time::Duration};

use ::redis::Script;

/// How long a waiter has to confirm a hand-over. A dead waiter delays the next by at most
/// this.
pub(super) const PROVISIONAL: Duration = Duration::from_secs(2);
/// How long a hand-over that was not confirmed remains visible.
const LAPSED: Duration = Duration::from_secs(2);
/// The longest time between two looks of a process at a resource that it waits for.
pub(super) const LOOK_MAX: Duration = Duration::from_secs(2);
/// How often to look at a resource that is locked without leasehold.
pub(super) const FOREIGN: Duration = Duration::from_millis(900);
/// How long a queue exists after the last look at it. A process that waits for 100,000
/// resources needs half an hour to look at all of them if a round trip takes a second.
const QUEUE: Duration = Duration::from_secs(60 * 60);
/// How many places a script checks at most, so that it does not block the server for long.
const CHUNK: usize = 512;
/// How many hand-overs of shared grants of a resource may be unconfirmed at the same time, and
/// how many expired shared grants a script removes at most.
const SHARED_CHUNK: usize = 64;
/// For how long a process that has proved that it does not stand still is not asked again by
/// those that do not wait behind it.
const QUIET: Duration = Duration::from_secs(5);

/// What a refused try must do: look at the resource at once, or soon.
pub(super) const LOOK_NOW: u8 = 1;
pub(super) const LOOK_SOON: u8 = 2;

const MINT: &str = include_str!("scripts/mint.lua");
const GRANT: &str = include_str!("scripts/grant.lua");
const READERS: &str = include_str!("scripts/readers.lua");
const OWN: &str = include_str!("scripts/own.lua");
const SUSPECT: &str = include_str!("scripts/suspect.lua");
const HANDOVER: &str = include_str!("scripts/handover.lua");

/// Every script, built once.
pub(super) struct Scripts {
    /// Acquires a free resource.
    pub(super) try_lock: Script,
    /// Acquires a free resource, or enters the queue.
    pub(super) lock: Script,
    /// Confirms a hand-over.
    pub(super) confirm: Script,
    /// Starts the TTL of a grant again.
    pub(super) renew: Script,
    /// Identifies what holds a resource, so that a release can be limited to it.
    pub(super) mark: Script,
    /// Ends a grant.
    pub(super) unlock: Script,
    /// Ends the grant of an attempt, or removes its place.
    pub(super) withdraw: Script,
    /// Hands over an expired resource, and checks a place in the queue.
    pub(super) look: Script,
    /// Removes the places of dead processes.
    pub(super) sweep: Script,
}

impl Scripts {
    /// All scripts, to be loaded.
    pub(super) fn all(&self) -> [&Script; 9] {
        let Self { try_lock, lock, confirm, renew, mark, unlock, withdraw, look, sweep } = self;
        [try_lock, lock, confirm, renew, mark, unlock, withdraw, look, sweep]
    }
}

/// The scripts.
pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let grants = [MINT, GRANT, READERS];
    let all = [MINT, GRANT, READERS, OWN, HANDOVER];
    Scripts {
        try_lock: script(&all, include_str!("scripts/try.lua")),
        lock: script(&all, include_str!("scripts/lock.lua")),
        confirm: script(&all, include_str!("scripts/confirm.lua")),
        renew: script(&grants, include_str!("scripts/renew.lua")),
        mark: script(&[MINT, GRANT, READERS, OWN], include_str!("scripts/mark.lua")),
        unlock: script(&all, include_str!("scripts/unlock.lua")),
        withdraw: script(&all, include_str!("scripts/withdraw.lua")),
        look: script(
            &[MINT, GRANT, READERS, OWN, HANDOVER, SUSPECT],
            include_str!("scripts/look.lua"),
        ),
        sweep: script(&[], include_str!("scripts/sweep.lua")),
    }
});

fn script(parts: &[&str], body: &str) -> Script {
    let mut code = String::new();
    for (name, value) in [
        ("PROVISIONAL_MS", PROVISIONAL.as_millis()),
        ("LAPSED_MS", LAPSED.as_millis()),
        ("UNKNOWN_MS", LOOK_MAX.as_millis()),
        ("FOREIGN_MS", FOREIGN.as_millis()),
        ("QUEUE_MS", QUEUE.as_millis()),
        ("CHUNK", CHUNK as u128),
        ("SHARED_CHUNK", SHARED_CHUNK as u128),
        ("QUIET_MS", QUIET.as_millis()),
        ("LOOK_NOW", LOOK_NOW.into()),
        ("LOOK_SOON", LOOK_SOON.into()),
    ] {
        if parts.iter().any(|part| part.contains(name)) || body.contains(name) {
            let _ = writeln!(code, "local {name} = {value}");
        }
    }
    for part in parts {
        code.push_str(part);
    }
    code.push_str(body);
    Script::new(&code)
}
