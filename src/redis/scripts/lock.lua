local resource, counter, queue = KEYS[1], KEYS[2], '\1q' .. KEYS[1]
local lock_id, ttl_ms, rest, attempt = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local place, waiters_max = ARGV[10] .. rest, tonumber(ARGV[12])

local last = redis.call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2]
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
