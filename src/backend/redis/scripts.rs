//! The atomic scripts: one a verb.
//!
//! Each is made of the parts that it needs and of the figures that Rust and
//! Lua must agree on. They run on Redis 6.2 and later, so without a shebang.

use std::{fmt::Write as _, sync::LazyLock, time::Duration};

use ::redis::Script;

/// How long a waiter that was called has for confirming it. A dead one delays
/// the next by no more.
pub(super) const PROVISIONAL: Duration = Duration::from_secs(2);
/// How long a hand-over that was not confirmed can still be seen.
const LAPSED: Duration = Duration::from_secs(2);
/// Longest time between two looks of a process at a resource that it waits for.
pub(super) const LOOK_MAX: Duration = Duration::from_secs(2);
/// How soon a resource is looked at that somebody locks by other means.
pub(super) const FOREIGN: Duration = Duration::from_millis(900);
/// How long a queue stays that nobody looks at any more. The looks of one process at
/// 100,000 resources take half an hour if each round trip takes a second.
const QUEUE: Duration = Duration::from_secs(60 * 60);
/// How many places one script goes through, so that none blocks the server for
/// long.
const CHUNK: usize = 512;

const MINT: &str = include_str!("scripts/mint.lua");
const GRANT: &str = include_str!("scripts/grant.lua");
const HANDOVER: &str = include_str!("scripts/handover.lua");

/// Every script, made once.
pub(super) struct Scripts {
    /// Acquires what is free.
    pub(super) try_lock: Script,
    /// Acquires what is free, or enters the queue.
    pub(super) lock: Script,
    /// Takes what was handed over.
    pub(super) confirm: Script,
    /// Starts a TTL again.
    pub(super) renew: Script,
    /// Tells what holds a resource, to aim a release at it.
    pub(super) mark: Script,
    /// Ends a grant.
    pub(super) unlock: Script,
    /// Ends what an attempt has come to.
    pub(super) withdraw: Script,
    /// Hands over what has expired, and looks for a place.
    pub(super) look: Script,
    /// Drops the places of the dead.
    pub(super) sweep: Script,
}

impl Scripts {
    /// All of them, to be loaded.
    pub(super) fn all(&self) -> [&Script; 9] {
        let Self { try_lock, lock, confirm, renew, mark, unlock, withdraw, look, sweep } = self;
        [try_lock, lock, confirm, renew, mark, unlock, withdraw, look, sweep]
    }
}

/// The scripts.
pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    try_lock: script(&[MINT, GRANT, HANDOVER], include_str!("scripts/try.lua")),
    lock: script(&[MINT, GRANT], include_str!("scripts/lock.lua")),
    confirm: script(&[MINT, GRANT], include_str!("scripts/confirm.lua")),
    renew: script(&[MINT, GRANT], include_str!("scripts/renew.lua")),
    mark: script(&[MINT, GRANT], include_str!("scripts/mark.lua")),
    unlock: script(&[MINT, GRANT, HANDOVER], include_str!("scripts/unlock.lua")),
    withdraw: script(&[MINT, GRANT, HANDOVER], include_str!("scripts/withdraw.lua")),
    look: script(&[MINT, GRANT, HANDOVER], include_str!("scripts/look.lua")),
    sweep: script(&[], include_str!("scripts/sweep.lua")),
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
