-- Registers the verbs. Names of functions are global on a server, so they have the hash of this
-- text, and different versions of leasehold can work beside each other.
--
-- The keys of a verb are, in the order of the constants in library.rs:
--
--   1 QUEUE     places by tickets           6 READERS   the shared grants
--   2 RESOURCE  the lock ID                 7 ENDS      their lock IDs by their ends
--   3 RECORD    the grant's record          8 TOKENS    their lock IDs by their tokens
--   4 COUNTER   the slot's last token       9 CALLED    places of readers that were called
--   5 QUESTION  the question
--
-- The caller declares 1 to 5, or all nine: a verb that needs more than it was given answers `wider`.
-- A `try` has 1 to 4, and a `release`, too, unless a notice can give a doubt. `renew` has 2 and 3.
-- Each of them has all nine once the resource had readers or a doubt. `target` always has all nine,
-- and `inspect` those of each of its resources. `peek` has the one key that it reads. `scan` has none
-- in a Cluster, otherwise one that never exists.

local function register(name, verb, flag)
  redis.register_function({ function_name = name .. SUFFIX, callback = verb, flags = { flag } })
end

register('try', try)
register('enter', enter)
-- These make no grant that was not handed over before, and add no place. So they run when the
-- server has no memory, too.
register('confirm', confirm, 'allow-oom')
register('find', find, 'allow-oom')
register('renew', renew, 'allow-oom')
register('release', release, 'allow-oom')
register('withdraw', withdraw, 'allow-oom')
register('target', target, 'allow-oom')
register('look', look, 'allow-oom')
register('sweep', sweep, 'allow-oom')
register('inspect', inspect, 'allow-oom')
register('peek', peek, 'allow-oom')
register('waiters', waiters, 'allow-oom')
register('scan', scan, 'allow-oom')
