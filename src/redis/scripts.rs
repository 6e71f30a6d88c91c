//! The atomic scripts, one for each operation.
//!
//! Each is put together from the parts that it needs and the constants that Rust and Lua
//! share. A part defines functions, or answers the usual cases before the functions that these
//! do not need. Scripts have no shebang, because they must run on Redis 6.2.

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
const BATCH: usize = 64;
/// How long a process that has proved that it does not stand still is not asked again on
/// behalf of callers that do not wait behind it.
const QUIET: Duration = Duration::from_secs(5);
/// How much longer than the last shared grant the keys of shared grants are kept when their
/// expiry is moved.
const KEPT: Duration = Duration::from_secs(10);

/// What a refused try must do: look at the resource at once, or soon.
pub(super) const LOOK_NOW: u8 = 1;
pub(super) const LOOK_SOON: u8 = 2;

const END_OF: &str = include_str!("scripts/end_of.lua");
const MINT: &str = include_str!("scripts/mint.lua");
const MAKE_GRANT: &str = include_str!("scripts/make_grant.lua");
const GRANT: &str = include_str!("scripts/grant.lua");
const END_TOGETHER: &str = include_str!("scripts/end_together.lua");
const LIVE: &str =
    concat!(include_str!("scripts/end_together.lua"), include_str!("scripts/live.lua"),);
const CONFIRMED: &str = include_str!("scripts/confirmed.lua");
const KEEP_OWN: &str = include_str!("scripts/keep_own.lua");
const OWN: &str = include_str!("scripts/own.lua");
const CALL: &str = include_str!("scripts/call.lua");
const HANDOVER: &str = include_str!("scripts/handover.lua");

const SHARED: &str = include_str!("scripts/shared.lua");
const SHARED_JOIN: &str = include_str!("scripts/shared_join.lua");
const SHARED_FORGET: &str = include_str!("scripts/shared_forget.lua");
const SHARED_MAKE: &str = include_str!("scripts/shared_make.lua");
const SHARED_SERVE: &str = include_str!("scripts/shared_serve.lua");
const SHARED_LOOK: &str = include_str!("scripts/shared_look.lua");
const SHARED_PAGE: &str = include_str!("scripts/shared_page.lua");
const SHARED_BY: &str = include_str!("scripts/shared_by.lua");

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
    /// Ends the grant with a public ID, or that an attempt was the last to get.
    pub(super) end_grant: Script,
    /// Hands over an expired resource, and checks a place in the queue.
    pub(super) look: Script,
    /// Removes the places of dead processes.
    pub(super) sweep: Script,
    /// Reads resources.
    pub(super) inspect: Script,
    /// Reads the waiters of a resource.
    pub(super) waiters: Script,
    /// Searches for the records of grants.
    pub(super) scan: Script,
}

impl Scripts {
    /// All scripts, to be loaded.
    pub(super) fn all(&self) -> [&Script; 13] {
        let Self {
            try_lock, lock, confirm, renew, mark, unlock, withdraw, look, sweep, ..
        } = self;
        let Self { end_grant, inspect, waiters, scan, .. } = self;
        [
            try_lock, lock, confirm, renew, mark, unlock, withdraw, look, sweep, end_grant,
            inspect, waiters, scan,
        ]
    }
}

/// The scripts.
pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let acquire = class(&[SHARED, SHARED_FORGET, SHARED_MAKE, SHARED_SERVE]);
    let release = class(&[SHARED, SHARED_FORGET, SHARED_SERVE]);
    let look = class(&[SHARED, SHARED_SERVE, SHARED_LOOK]);
    let read = class(&[SHARED]);
    let inspect = class(&[SHARED, SHARED_PAGE]);
    Scripts {
        try_lock: script(&[
            MINT,
            SHARED_JOIN,
            "if first then return first end\n",
            END_OF,
            MAKE_GRANT,
            include_str!("scripts/try_free.lua"),
            GRANT,
            LIVE,
            include_str!("scripts/try_held.lua"),
            CONFIRMED,
            KEEP_OWN,
            OWN,
            CALL,
            &acquire,
            HANDOVER,
            include_str!("scripts/try.lua"),
        ]),
        lock: script(&[
            END_OF,
            MINT,
            MAKE_GRANT,
            GRANT,
            "if ARGV[5] ~= '' or ARGV[7] == 's' or ARGV[11] == '1' then\n",
            SHARED_JOIN,
            "if first then return { 'made', first, ARGV[1] } end\n",
            LIVE,
            CONFIRMED,
            KEEP_OWN,
            OWN,
            CALL,
            &acquire,
            HANDOVER,
            include_str!("scripts/lock_own.lua"),
            "end\n",
            include_str!("scripts/lock.lua"),
        ]),
        confirm: script(&[
            END_OF,
            MINT,
            MAKE_GRANT,
            CONFIRMED,
            include_str!("scripts/confirm_own.lua"),
            GRANT,
            LIVE,
            KEEP_OWN,
            OWN,
            CALL,
            &acquire,
            HANDOVER,
            include_str!("scripts/confirm.lua"),
        ]),
        renew: script(&[GRANT, END_OF, LIVE, &read, include_str!("scripts/renew.lua")]),
        mark: script(&[
            GRANT,
            END_OF,
            LIVE,
            &read,
            include_str!("scripts/mark_of.lua"),
            include_str!("scripts/mark.lua"),
        ]),
        unlock: script(&[
            include_str!("scripts/unlock_only.lua"),
            include_str!("scripts/shared_leave.lua"),
            END_OF,
            GRANT,
            LIVE,
            include_str!("scripts/mark_of.lua"),
            CALL,
            &release,
            HANDOVER,
            include_str!("scripts/unlock.lua"),
        ]),
        withdraw: script(&[
            GRANT,
            END_OF,
            LIVE,
            CALL,
            &release,
            HANDOVER,
            include_str!("scripts/withdraw.lua"),
        ]),
        end_grant: script(&[
            GRANT,
            END_OF,
            LIVE,
            CALL,
            &release,
            HANDOVER,
            include_str!("scripts/end_grant.lua"),
        ]),
        look: script(&[
            GRANT,
            END_OF,
            LIVE,
            CALL,
            &look,
            HANDOVER,
            include_str!("scripts/look.lua"),
        ]),
        sweep: script(&[include_str!("scripts/sweep.lua")]),
        inspect: script(&[
            GRANT,
            END_OF,
            END_TOGETHER,
            &inspect,
            include_str!("scripts/inspect.lua"),
        ]),
        waiters: script(&[GRANT, include_str!("scripts/waiters.lua")]),
        scan: script(&[include_str!("scripts/scan.lua")]),
    }
});

fn script(parts: &[&str]) -> Script {
    let code = parts.concat();
    Script::new(&(constants(&code) + &code))
}

/// The functions for shared grants, which are made when the first of them is needed: making a
/// function costs as much as a command does, and most locks are exclusive.
fn class(parts: &[&str]) -> String {
    let code = parts.concat();
    format!(
        "local Shared\nlocal function sharing()\nif Shared then return Shared end\n{}Shared = {{}}\n\
        Shared.__index = Shared\n{code}return Shared\nend\n{SHARED_BY}",
        constants(&code),
    )
}

/// The constants that Rust and Lua share, as far as they occur in this code.
fn constants(code: &str) -> String {
    let mut lines = String::new();
    for (name, value) in [
        ("PROVISIONAL_MS", PROVISIONAL.as_millis()),
        ("LAPSED_MS", LAPSED.as_millis()),
        ("UNKNOWN_MS", LOOK_MAX.as_millis()),
        ("FOREIGN_MS", FOREIGN.as_millis()),
        ("QUIET_MS", QUIET.as_millis()),
        ("KEPT_MS", KEPT.as_millis()),
        ("CHUNK", CHUNK as u128),
        ("BATCH", BATCH as u128),
        ("LOOK_NOW", LOOK_NOW.into()),
        ("LOOK_SOON", LOOK_SOON.into()),
    ] {
        if code.contains(name) {
            let _ = writeln!(lines, "local {name} = {value}");
        }
    }
    // Those that are given to commands: see end_of.lua.
    for (name, time) in [("CALLED_MS", PROVISIONAL + LAPSED), ("QUEUE_MS", QUEUE)] {
        if code.contains(name) {
            let _ = writeln!(lines, "local {name} = '{}'", time.as_millis());
        }
    }
    lines
}
