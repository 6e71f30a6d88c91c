-- While a resource is shared, the first waiter may be a writer that keeps readers out, and
-- nothing was handed over to it that could lapse. So a look of another process asks its process
-- for a look of its own. A process that has not looked in time counts as silent.
--
-- Returns the silent process, and whether to look again soon. `insistent` is whether the look is
-- on behalf of a waiter; any other is satisfied with an answer of a moment ago.
function Shared:suspect(writer, looker, insistent)
  local doubt = redis.call('HGET', self.records, 'd') or ''
  local whose, since, answered = string.match(doubt, '^(%x+):(%d+)(%+?)$')
  local known = whose == writer.attempt
  local age_ms = known and self.now - since or 0
  local function note(text)
    text = writer.attempt .. ':' .. self.now_text .. text
    redis.call('HSET', self.records, 'd', text)
  end
  if looker == writer.process then
    if known and answered == '' then note('+') end
    return nil, false
  end
  if known and answered == '' then
    if age_ms >= PROVISIONAL_MS then return writer.process, false end
    return nil, true
  end
  if known and not insistent and age_ms < QUIET_MS then return nil, false end
  note('')
  redis.pcall('PUBLISH', '\1n' .. writer.process, 'look::' .. self.resource)
  return nil, true
end

-- Whether the place of an attempt is lost.
function Shared:is_lost(attempt, place)
  if place == '' or redis.call('ZSCORE', self.queue, place) then return false end
  if redis.call('ZSCORE', self.called, place) then return false end
  local grant = self:grant(read_rest(string.sub(place, 33)).lock_id)
  return not (grant and grant.attempt == attempt)
end

-- A look while the resource is shared: see look.lua.
function Shared:look(process, attempt, place, how)
  local lost = self:is_lost(attempt, place) and 1 or 0
  redis.call('PEXPIRE', self.queue, QUEUE_MS)
  local again_ms, own = PROVISIONAL_MS, {}
  local called = redis.call('ZRANGE', self.called, 0, -1, 'WITHSCORES')
  for i = 1, #called, 2 do
    local owner = string.sub(called[i], 1, 32)
    local lapses_ms = called[i + 1] - LAPSED_MS - self.now
    if owner == process then
      -- The notice may have been lost, so this answer repeats it.
      table.insert(own, string.match(called[i], '^%d+:(%x+):', 33))
      again_ms = math.min(again_ms, math.max(lapses_ms, FOREIGN_MS))
    elseif lapses_ms <= 0 then
      -- Each look drops one silent process. The next comes at once.
      if how.lapsed and how.lapsed ~= owner then again_ms = 0 end
      how.lapsed = owner
    else
      again_ms = math.min(again_ms, lapses_ms)
    end
  end
  -- Places after the current last one are newer than the lapse.
  local last = redis.call('ZRANGE', self.queue, '-1', '-1', 'WITHSCORES')[2] or '0'
  if how.lapsed then
    for i = 1, #called, 2 do
      if string.sub(called[i], 1, 32) == how.lapsed then
        redis.call('ZREM', self.called, called[i])
      end
    end
  end
  local handed = self:settle(how)
  local soon = false
  if how.writer and not how.lapsed then
    how.lapsed, soon = self:suspect(how.writer, process, place ~= '')
    if how.lapsed then handed = self:settle(how) end
  end
  local open = handed == 1 or soon or self:count_live(self.called) > 0
  if handed == 2 then
    again_ms = 0
  elseif not open then
    again_ms = redis.call('PTTL', self.resource)
  end
  return { again_ms, open and 1 or 0, lost, table.concat(own, ' '), how.lapsed or '', last }
end
