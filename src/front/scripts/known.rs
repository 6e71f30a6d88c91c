//! The scripts of lock libraries, and what they do.
//!
//! To add one: send it to a front, whose error has its digest; find out what it does and how its
//! library interprets each answer; and add a line, with the versions that send it. The programs
//! of `conformance/redis-front` run the libraries against the table.

use crate::{arguments::Unit, reply::Reply, verb::Replies};

/// A recognised script. The first key is the lock's, and the value is in `ARGV[1]`.
#[derive(Debug)]
pub(super) struct Known {
    /// The SHA-1 of its normal form.
    pub(super) digest: &'static str,
    /// How many keys it has.
    pub(super) keys: usize,
    /// What it does.
    pub(super) action: Action,
    /// What it returns.
    pub(super) replies: Replies,
}

/// What a script does. The number is the position of the TTL among its arguments, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Sets the value if the key is free.
    Acquire(usize, Unit),
    /// Compares the value and sets the TTL.
    Renew(usize, Unit),
    /// Like `Renew`, or adds to the TTL if the argument at the second position is `0`.
    RenewOrProlong(usize, usize),
    /// Compares the value and sets the TTL, or sets the value if the key is free.
    RenewOrAcquire(usize, Unit),
    /// Compares the value and returns the TTL.
    Remaining,
    /// Compares the value and deletes the key.
    Release,
}

use Action::{Acquire, Release, Remaining, Renew, RenewOrAcquire, RenewOrProlong};
use Unit::Milliseconds;

const fn known(digest: &'static str, action: Action, replies: Replies) -> Known {
    Known { digest, keys: 1, action, replies }
}

/// A script with a second key: a list on which others wait for a signal. Nobody waits there,
/// because `BLPOP` is refused.
const fn with_signal(digest: &'static str, action: Action, replies: Replies) -> Known {
    Known { digest, keys: 2, action, replies }
}

/// 1 if it was done, else 0.
const ONE_OR_ZERO: Replies = Replies::integers(1, 0, 0);
/// 0 if it was done, else 1.
const ZERO_OR_ONE: Replies = Replies::integers(0, 1, 1);
/// `true`, which is 1, or `false`, which is no value.
const TRUE_OR_FALSE: Replies = Replies::or_null(Reply::Integer(1));

/// `OK`, or no value.
const OK_OR_NULL: Replies = Replies::or_null(Reply::OK);

/// The table.
pub(super) static KNOWN: [Known; 29] = [
    // The script of Redis' own documentation; redislock to 0.9 Release, redsync to 4.11 Unlock,
    // ShedLock from 6.10 unlock with safeUpdate, node-redlock to 3 unlock.
    known("c0c707c4bec016dafd187acc09028350cd8b3f6d", Release, ONE_OR_ZERO),
    // redislock to 0.9 Refresh, redsync 4 Extend, ShedLock from 6.10 extend with safeUpdate.
    known("d4477b9f7579af482457f0c2f363525cff4ea1d4", Renew(2, Milliseconds), ONE_OR_ZERO),
    // Often written by hand: the same with EXPIRE, in seconds.
    known("9d071e3e2e37313935eefcd4507f6faa9172728e", Renew(2, Unit::Seconds), ONE_OR_ZERO),
    // Dapr 1.18, the built-in lock.redis: Unlock.
    known("a5bb89f2a5787c85955d6817e50a806e31512276", Release, Replies::integers(1, -2, -1)),
    // redis-py 3.5 to 8.1: release, extend, reacquire.
    known("7207705fe594df3ae9284ac1bb02cb839e6bb6d6", Release, ONE_OR_ZERO),
    known("f450802dd75d333e0f6e746befbe093331bc1869", RenewOrProlong(2, 3), ONE_OR_ZERO),
    known("7e5b8b1c8492617cc2e01b1f67de23df28f74ccb", Renew(2, Milliseconds), ONE_OR_ZERO),
    // redsync from 4.12: Unlock; Extend with WithSetNXOnExtend.
    known("5f851f2ef1cdcac21aa82b064c9ac022a9a7adb0", Release, Replies::integers(1, 0, -1)),
    known(
        "1f9a1f028f75d4d6ce17714651295ce404fad2d5",
        RenewOrAcquire(2, Milliseconds),
        ONE_OR_ZERO,
    ),
    // redislock 0.9.4: Obtain, TTL. In Redis, Obtain with the token of a live lock also changes the
    // metadata behind it. Here that is refused, because the whole value is the lock ID.
    known(
        "e16f7c44afa75fbb95a41921267d0e13df09bad5",
        RenewOrAcquire(3, Milliseconds),
        OK_OR_NULL,
    ),
    known("0346cd486b0a21da6d24adcd2e2905865b5df13d", Remaining, Replies::integers(0, -3, -3)),
    // redislock 0.10: Obtain, Refresh, TTL, Release.
    known(
        "47eee42d938455f4ba712875fa59b383f094d84a",
        RenewOrAcquire(3, Milliseconds),
        OK_OR_NULL,
    ),
    known("f4cb418cbf1659d296fd536e27fad8df115c49f9", Renew(2, Milliseconds), OK_OR_NULL),
    known("8a95f6890b25a53bfe1f836ce3352991a9d21134", Remaining, OK_OR_NULL),
    known("0a19f20235f7dd022c036e0b53f8b6bac7ae07d8", Release, OK_OR_NULL),
    // node-redlock 2 and 3 lock; 4 and 5 acquire, extend, release.
    known("af941bd341c75f42f71417c790ff831ddf365132", Acquire(2, Milliseconds), OK_OR_NULL),
    known("d4e6fca49c680bb234bf373ae1a42e30a8ff8a08", Acquire(2, Milliseconds), ONE_OR_ZERO),
    known("04401a2dcbdc523ea08ed84c75cca97e9929a74a", Renew(2, Milliseconds), ONE_OR_ZERO),
    known("12c93ff475b2fa8badc1bcee7255b6a36daa3582", Release, ONE_OR_ZERO),
    // Spring Integration 5.5 to 7.1, RedisLockRegistry with spin locks: obtain, renew, unlock with
    // UNLINK and with DEL.
    known(
        "c9d38f9a98551c2143023d2533f0f1d031ed006f",
        RenewOrAcquire(2, Milliseconds),
        TRUE_OR_FALSE,
    ),
    known("5f194d0f0fe0cffeffeffe4f82addee2324a1e7d", Renew(2, Milliseconds), TRUE_OR_FALSE),
    known("8e34c43c50cba00f3e1a21a0fe90d2c219de9666", Release, TRUE_OR_FALSE),
    known("93bdeaac8bc94975431ca0a422440dd68e4c4423", Release, TRUE_OR_FALSE),
    // The same registry of version 7 with messages: unlock. Nobody listens for the message,
    // because SUBSCRIBE is refused. Without the script, a lock would stay until its TTL
    // ends.
    known("cd8504f90884506924f28d26b1b35398720944a0", Release, TRUE_OR_FALSE),
    // redis-semaphore for Node, 5.0 to 5.8, Mutex and RedlockMutex: release, refresh, refresh of 5.0.
    known("9c3a455e708879fedd31f9be93c7f57a228dd6b6", Release, ONE_OR_ZERO),
    known("91e12f6ebb7ea534f5ad5273c84a2181b727f30a", Renew(2, Milliseconds), ONE_OR_ZERO),
    known(
        "275fdd5c069d4783d3ac1cbf02ff57333df82c36",
        RenewOrAcquire(2, Milliseconds),
        ONE_OR_ZERO,
    ),
    // python-redis-lock 3.7 to 4.0: release, extend.
    with_signal("b9cf130425f1db5a07ec8deda1553cae2c5e6594", Release, ZERO_OR_ONE),
    with_signal(
        "e3f5b07401d88811169ce7df28a07bdf06e990bd",
        Renew(2, Unit::Seconds),
        ZERO_OR_ONE,
    ),
];
