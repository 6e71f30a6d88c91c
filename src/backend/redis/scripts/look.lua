local resource = KEYS[1]
local process, place, attempt = ARGV[1], ARGV[2], ARGV[3]
local how = { monitored = ARGV[4] == '1', holders_max = tonumber(ARGV[5]) }
local queue = '\1q' .. resource

-- Whether the place is lost, because the queue was lost or the place was dropped.
local function is_lost(shared)
  if place == '' or redis.call('ZSCORE', queue, place) then return false end
  if not shared then return true end
  if redis.call('ZSCORE', shared.called, place) then return false end
  local grant = reader(shared, read_rest(string.sub(place, 33)).lock_id)
  return not (grant and grant.attempt == attempt)
end

-- The look at a resource that is shared.
local function look_shared(shared)
  local lost = is_lost(shared) and 1 or 0
  redis.call('PEXPIRE', queue, QUEUE_MS)
  local again_ms, own = PROVISIONAL_MS, {}
  local called = redis.call('ZRANGE', shared.called, 0, -1, 'WITHSCORES')
  for i = 1, #called, 2 do
    local owner, whose = read_place(called[i])
    local lapses_ms = called[i + 1] - LAPSED_MS - shared.now
    if owner == process then
      -- The notice may have been lost, so this answer repeats it.
      table.insert(own, whose)
      again_ms = math.min(again_ms, math.max(lapses_ms, FOREIGN_MS))
    elseif lapses_ms <= 0 then
      how.lapsed = owner
    else
      again_ms = math.min(again_ms, lapses_ms)
    end
  end
  -- Places after the current last one are newer than the lapse.
  local last = '0'
  local function note_last()
    last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or '0'
  end
  if how.lapsed then
    note_last()
    for i = 1, #called, 2 do
      if read_place(called[i]) == how.lapsed then redis.call('ZREM', shared.called, called[i]) end
    end
  end
  local handed = settle(shared, how)
  local soon = false
  if how.writer and not how.lapsed then
    how.lapsed, soon = suspect(shared, how.writer, process, place ~= '')
    if how.lapsed then
      note_last()
      handed = settle(shared, how)
    end
  end
  local open = handed == 1 or soon or count_live(shared, shared.called) > 0
  if handed == 2 then
    again_ms = 0
  elseif not open then
    again_ms = redis.call('PTTL', resource)
  end
  return { again_ms, open and 1 or 0, lost, table.concat(own, ' '), how.lapsed or '', last }
end

local grant, value = live_grant(resource)
local shared = not grant and shared_by(resource, value)
if shared then return look_shared(shared) end
local left_ms = redis.call('PTTL', resource)
local lost = 0
if not (grant and grant.attempt == attempt) and is_lost() then lost = 1 end
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
local last = lapsed and redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
how.lapsed = lapsed
local handed = handover(resource, how)
-- The record of a grant that was deleted by hand must not outlive the hand-over.
if handed == 1 then redis.call('DEL', '\1h' .. resource) end
local again_ms = ({ [0] = -2, PROVISIONAL_MS, 0 })[handed]
return { again_ms, handed, lost, '', lapsed or '', last or '0' }
