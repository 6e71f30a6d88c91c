local resource, counter = KEYS[1], KEYS[2]
local lock_id, ttl_ms, rest, attempt, request, given =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local process, again, waiters_max, sign = ARGV[7], ARGV[8] == '1', tonumber(ARGV[9]), ARGV[10]
local queue = '\1q' .. resource

local left_ms = redis.call('PTTL', resource)
if left_ms ~= -2 and (again or request ~= '') then
  local own = find_own(resource, lock_id, ttl_ms, attempt, request, given)
  if own then return own end
end
if left_ms == -2 and redis.call('EXISTS', queue) == 0 then
  return { 'made', make_grant(resource, counter, lock_id, rest, ttl_ms), lock_id }
end
if not (again and redis.call('LPOS', queue, process .. rest)) then
  local waiting = redis.call('RPUSH', queue, process .. rest)
  if waiting > waiters_max then
    redis.call('RPOP', queue)
    return { 'full' }
  end
  if waiting == 1 then redis.call('PEXPIRE', queue, QUEUE_MS) end
end
if sign == '1' then redis.call('SET', '\1a' .. process, '', 'PX', SIGN_MS) end
if left_ms == -2 then
  handover(resource, counter, true)
  left_ms = PROVISIONAL_MS
end
return { 'queued', left_ms }
