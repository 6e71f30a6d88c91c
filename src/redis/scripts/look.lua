local resource = KEYS[1]
local process, place, attempt = ARGV[1], ARGV[2], ARGV[3]
local how = { monitored = ARGV[4] == '1', holders_max = tonumber(ARGV[5]) }
local queue = '\1q' .. resource
local grant, value = live_grant(resource)
local shared = not grant and shared_by(resource, value)
if shared then return shared:look(process, attempt, place, how) end
local left_ms = redis.call('PTTL', resource)
-- Whether the place is lost, because the queue was lost or the place was dropped.
local lost = 0
if place ~= '' and not (grant and grant.attempt == attempt)
  and not redis.call('ZSCORE', queue, place) then lost = 1 end
local called = grant and grant.process
if called == process then
  -- The notice may have been lost, so this answer repeats it.
  return { math.max(left_ms - LAPSED_MS, FOREIGN_MS), 1, lost, grant.attempt }
end
redis.call('PEXPIRE', queue, QUEUE_MS)
local lapsed = called and left_ms <= LAPSED_MS and called
if left_ms ~= -2 and not lapsed then
  if called then return { left_ms - LAPSED_MS, 1, lost } end
  -- The lock was made without leasehold. Nobody announces its end, so look often.
  if not grant then left_ms = FOREIGN_MS end
  return { left_ms, 0, lost }
end
-- Places after the current last one are newer than the lapse.
local last = lapsed and redis.call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2]
how.lapsed = lapsed
local handed = handover(resource, how)
-- The record of a grant that was deleted by hand must not outlive the hand-over.
if handed == 1 then redis.call('DEL', '\1h' .. resource) end
local again_ms = ({ [0] = -2, PROVISIONAL_MS, 0 })[handed]
return { again_ms, handed, lost, '', lapsed or '', last or '0' }
