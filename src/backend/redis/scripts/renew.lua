local resource, lock_id, ttl_ms = KEYS[1], ARGV[1], ARGV[2]
local value = redis.call('GET', resource)
local shared = shared_by(resource, value)
if shared then
  if not shared:grant(lock_id) then return shared:refuse_owner() end
  shared:extend(lock_id, ttl_ms)
  shared:move_end()
  return { 'ok' }
end
if value ~= lock_id then return refuse(resource, { 'not', value and 1 or 0 }) end
local record = '\1h' .. resource
if end_together(resource, record) then
  extend(resource, ttl_ms)
else
  -- The lock was made without leasehold. A record that still exists belongs to an ended grant,
  -- and must not expire at the same time as this lock.
  redis.call('DEL', record)
  redis.call('PEXPIRE', resource, ttl_ms)
end
return { 'ok' }
