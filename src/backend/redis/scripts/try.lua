local resource, counter = KEYS[1], KEYS[2]
local lock_id, ttl_ms, rest, attempt, request, given =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local queue = '\1q' .. resource

if redis.call('EXISTS', resource, queue) == 0 then
  return make_grant(resource, counter, lock_id, rest, ttl_ms)
end
local own, value, grant = find_own(resource, lock_id, ttl_ms, attempt, request, given)
if own then return own end
if value or redis.call('EXISTS', resource) == 1 then
  return refuse(resource, { 'held', grant and grant.holder or '' })
end
-- Free, but there is a queue: only if all of it is dead may a try go before it.
local heads = redis.call('LRANGE', queue, 0, SKIPS_MAX)
if #heads > SKIPS_MAX then return refuse(resource, { 'held', '' }) end
for _, entry in ipairs(heads) do
  if redis.call('EXISTS', '\1a' .. string.sub(entry, 1, 32)) == 1 then
    return refuse(resource, { 'held', '' })
  end
end
redis.call('DEL', queue)
return make_grant(resource, counter, lock_id, rest, ttl_ms)
