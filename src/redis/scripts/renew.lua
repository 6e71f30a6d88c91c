local resource, lock_id, ttl_ms = KEYS[1], ARGV[1], ARGV[2]
local record = '\1h' .. resource
local found = redis.call('MGET', resource, record)
local value = found[1]
local shared = shared_by(resource, value)
if shared then
  local grant = shared:grant(lock_id)
  if not grant then return shared:refuse_owner() end
  shared:extend(lock_id, ttl_ms)
  shared:move_end()
  return { 'renewed', grant.id }
end
-- GET fails for a key of another type, which MGET treats as absent.
if value ~= lock_id then
  return refuse(resource, { 'not', redis.call('GET', resource) and 1 or 0 })
end
if end_together(resource, record) then
  extend(resource, ttl_ms)
  return { 'renewed', string.match(found[2] or '', '^%d+:%d+:(%x+)') }
end
-- The lock was made without leasehold. A record that still exists belongs to an ended grant, and
-- must not expire at the same time as this lock.
redis.call('DEL', record)
redis.call('PEXPIRE', resource, ttl_ms)
return { 'renewed' }
