local resource, counter = KEYS[1], KEYS[2]
local lock_id, ttl_ms, rest, attempt, request, given =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local monitored = ARGV[7] == '1'
local queue = '\1q' .. resource

if redis.call('EXISTS', resource, queue) == 0 then
  return make_grant(resource, counter, lock_id, rest, ttl_ms)
end
local own, value, grant =
  find_own(resource, counter, lock_id, ttl_ms, attempt, request, given)
if own then return own end
if value or redis.call('EXISTS', resource) == 1 then
  return refuse(resource, { 'held', grant and grant.holder or '', 0 })
end
-- The resource is free, but there is a queue. The first waiter whose process listens gets the
-- resource; if all of them are dead, the caller does. Otherwise the caller must look, because
-- perhaps nobody else does if the hand-over lapses or more dead waiters are left.
local handed = handover(resource, monitored)
if handed == 0 then
  return make_grant(resource, counter, lock_id, rest, ttl_ms)
end
return { 'held', '', 1 }
