local resource, lock_id, ttl_ms = KEYS[1], ARGV[1], ARGV[2]
local grant, value = live_grant(resource)
if value ~= lock_id then return refuse(resource, { 'not', value and 1 or 0 }) end
if grant then
  extend(resource, ttl_ms)
else
  -- Locked by other means: a record that is still there belongs to a dead grant,
  -- and must not come to end together with this lock.
  redis.call('DEL', '\1h' .. resource)
  redis.call('PEXPIRE', resource, ttl_ms)
end
return { 'ok' }
