local resource, lock_id, ttl_ms = KEYS[1], ARGV[1], ARGV[2]
local value = redis.call('GET', resource)
if value ~= lock_id then return { 'not', value and 1 or 0 } end
redis.call('PEXPIRE', resource, ttl_ms)
redis.call('PEXPIRE', '\1h' .. resource, ttl_ms)
tell_short(resource, ttl_ms)
return { 'ok' }
