-- Registers the verbs. Names of functions are global on a server, so they have the hash of this
-- text, and different versions of leasehold can work beside each other.

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
register('renew_narrow', renew_narrow, 'allow-oom')
register('release', release, 'allow-oom')
register('withdraw', withdraw, 'allow-oom')
register('target', target, 'allow-oom')
register('look', look, 'allow-oom')
register('sweep', sweep, 'allow-oom')
register('inspect', inspect, 'allow-oom')
register('peek', peek, 'allow-oom')
register('waiters', waiters, 'allow-oom')
register('scan', scan, 'allow-oom')
