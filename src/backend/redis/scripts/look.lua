local resource, counter = KEYS[1], KEYS[2]
local left_ms = redis.call('PTTL', resource)
local waiting = redis.call('LLEN', '\1q' .. resource)
if left_ms == -2 then
  local outcome = handover(resource, counter, true)
  if outcome == 1 then return { PROVISIONAL_MS, 1, waiting } end
  return { outcome == 2 and 0 or -2, 0, waiting }
end
redis.call('PEXPIRE', '\1q' .. resource, QUEUE_MS)
local grant = live_grant(resource)
-- Somebody else's way of locking: it ends without a word, so look often.
if not grant then return { FOREIGN_MS, 0, waiting } end
return { left_ms, 0, waiting }
