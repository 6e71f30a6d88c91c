local resource, counter = KEYS[1], KEYS[2]
local asked = read_asked()
local how = { monitored = ARGV[8] == '1', holders_max = tonumber(ARGV[9]) }
local place, again, waiters_max = ARGV[10] .. asked.rest, ARGV[11] == '1', tonumber(ARGV[12])
local queue = '\1q' .. resource
asked.place = place

if again or asked.request ~= '' then
  local own, _, _, shared = find_own(resource, counter, asked)
  if own then
    if shared then own[4] = settle(shared, how) end
    return own
  end
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
    return { 'made', make_first(resource, counter, asked), asked.lock_id }
  end
end
local shared = asked.mode == 's' and shared_by(resource, redis.call('MGET', resource)[1])
if shared then
  if reader(shared, asked.lock_id) then return refuse(resource, { 'taken' }) end
  local count = count_sharing(shared)
  if not last and count > 0 and count < how.holders_max then
    return { 'made', make_reader(resource, counter, asked, shared), asked.lock_id }
  end
  left_ms = UNKNOWN_MS
end
-- All tickets of a queue have the random fraction of its first ticket. So a sweep that comes
-- late can recognize the places of a newer queue.
local ticket =
  last and last + 1 or 1 + tonumber(string.sub(asked.attempt, 1, 5), 16) / 0x100000
-- The first ticket is between 1 and 2, so at most `ticket` places are in the queue.
if ticket > waiters_max and redis.call('ZCARD', queue) >= waiters_max then
  return refuse(resource, { 'full' })
end
redis.call('ZADD', queue, ticket, place)
if not last then redis.call('PEXPIRE', queue, QUEUE_MS) end
return { 'queued', left_ms }
