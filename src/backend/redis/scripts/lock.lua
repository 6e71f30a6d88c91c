local resource, counter = KEYS[1], KEYS[2]
local lock_id, ttl_ms, rest, attempt, request, given =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local place, again, waiters_max = ARGV[7] .. rest, ARGV[8] == '1', tonumber(ARGV[9])
local queue = '\1q' .. resource

if again or request ~= '' then
  local own = find_own(resource, counter, lock_id, ttl_ms, attempt, request, given)
  if own then return own end
end
-- This comes before any write, because a write needs memory.
if again and redis.call('ZSCORE', queue, place) then
  return refuse(resource, { 'queued', UNKNOWN_MS })
end
local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
local left_ms = UNKNOWN_MS
if not last then
  left_ms = redis.call('PTTL', resource)
  if left_ms == -2 then
    return { 'made', make_grant(resource, counter, lock_id, rest, ttl_ms), lock_id }
  end
end
-- All tickets of a queue have the random fraction of its first ticket. So a sweep that comes
-- late can recognize the places of a newer queue.
local ticket = last and last + 1 or 1 + tonumber(string.sub(attempt, 1, 5), 16) / 0x100000
-- The first ticket is between 1 and 2, so at most `ticket` places are in the queue.
if ticket > waiters_max and redis.call('ZCARD', queue) >= waiters_max then
  return refuse(resource, { 'full' })
end
redis.call('ZADD', queue, ticket, place)
if not last then redis.call('PEXPIRE', queue, QUEUE_MS) end
return { 'queued', left_ms }
