-- The turns of those who wait for a resource that is shared.

-- When a hand-over that is made now ends: see queue.lua.
function readers:called_until()
  return self:after(CALLED_MS)
end

function readers:note_called(called)
  redis.call('ZADD', self.keys[CALLED], unpack(called))
  redis.call('PEXPIRE', self.keys[CALLED], CALLED_MS)
  self:move_end()
end

-- Hands the resource over to the shared waiters at the head of the queue, some at a time, and
-- drops dead waiters there. An exclusive waiter stops it, and is returned in `how.writer`. The
-- result is that of `queue.hand_over`, but FREE also if the waiters must keep waiting, and HANDED
-- also if an earlier hand-over is not confirmed yet. `how.called` is whether there is a new one.
function readers:admit(how)
  local keys = self.keys
  if redis.call('EXISTS', keys[QUEUE]) == 0 then return FREE end
  local dead = {}
  if how.lapsed then dead[how.lapsed] = true end
  local open = self:count_in(keys[CALLED])
  local room = math.min(BATCH, how.holders_max - self:count_in(keys[ENDS])) - open
  local batch = math.max(room, 1)
  local result
  for _ = 1, CHUNK / BATCH do
    local served, called = {}, {}
    local places = redis.call('ZRANGE', keys[QUEUE], 0, batch - 1)
    if #places < batch then result = FREE end
    for _, place in ipairs(places) do
      local process, attempt, mode = string.match(place, '^(%x+):(%x+):(%a):')
      local is_alive = process and not dead[process]
      if is_alive and mode == 's' then
        if room <= 0 then
          result = FREE
          break
        end
        is_alive = queue.notify(keys, process, attempt, how)
        if is_alive then
          room = room - 1
          table.insert(called, self:called_until())
          table.insert(called, place)
        end
      elseif is_alive then
        -- Without the permission to ask, it counts as alive.
        is_alive = (redis.pcall('PUBSUB', 'NUMSUB', '\1n' .. process)[2] or 1) > 0
        if is_alive then
          how.writer = { process = process, attempt = attempt }
          result = FREE
          break
        end
      end
      if process and not is_alive then dead[process] = true end
      table.insert(served, place)
    end
    if #served > 0 then redis.call('ZREM', keys[QUEUE], unpack(served)) end
    if #called > 0 then
      open = open + #called / 2
      how.called = true
      self:note_called(called)
    end
    if result then return open > 0 and HANDED or FREE end
    batch = BATCH
  end
  return MORE
end

-- Serves those who wait after something has changed among the grants or in the queue. If none is
-- left, hands the resource over.
function readers:settle(how)
  if self:move_end() then return self:admit(how) end
  self:finish()
  return queue.pass_on(self.keys, how)
end

-- Hands a resource that is free over to this place, and to the shared waiters behind it.
function readers.start(keys, attempt, place, how)
  local self = readers.begin(keys, attempt)
  self:note_called({ self:called_until(), place })
  self:admit(how)
  return HANDED
end

-- Ends the grant of an attempt, or the hand-over to it. A hand-over to an attempt that does not
-- wait is known by the attempt alone. Returns whether there was one.
function readers:withdraw(attempt, place, only_called)
  local called = self.keys[CALLED]
  if not only_called then
    local lock_id = format.place(place).lock_id
    local grant = self:grant(lock_id)
    if not (grant and grants.is_own(grant, attempt)) then
      return redis.call('ZREM', called, place) == 1
    end
    self:forget({ lock_id })
    return true
  end
  for _, handed in ipairs(redis.call('ZRANGE', called, 0, -1)) do
    if string.match(handed, '^%x+:(%x+):') == attempt then
      return redis.call('ZREM', called, handed) == 1
    end
  end
  return false
end

-- While a resource is shared, the first waiter may be a writer that keeps readers out, and
-- nothing was handed over to it that could lapse. So a look of another process asks its process
-- for a look of its own. A process that has not looked in time counts as silent.
--
-- Returns the silent process, and whether to look again soon. `insistent` is whether the look is
-- on behalf of a waiter; any other is satisfied with an answer of a moment ago.
function readers:suspect(writer, looker, insistent)
  local doubt = redis.call('HGET', self.keys[READERS], 'd') or ''
  local whose, since, answered = string.match(doubt, '^(%x+):(%d+)(%+?)$')
  local is_known = whose == writer.attempt
  local age_ms = is_known and self.now - since or 0
  local function note(text)
    text = writer.attempt .. ':' .. self.now_text .. text
    redis.call('HSET', self.keys[READERS], 'd', text)
  end
  if looker == writer.process then
    if is_known and answered == '' then note('+') end
    return nil, false
  end
  if is_known and answered == '' then
    if age_ms >= PROVISIONAL_MS then return writer.process, false end
    return nil, true
  end
  if is_known and not insistent and age_ms < QUIET_MS then return nil, false end
  note('')
  redis.pcall('PUBLISH', '\1n' .. writer.process, 'look::' .. self.keys[RESOURCE])
  return nil, true
end

-- Whether the place of an attempt is lost.
function readers:is_lost(attempt, place)
  if place == '' or redis.call('ZSCORE', self.keys[QUEUE], place) then return false end
  if redis.call('ZSCORE', self.keys[CALLED], place) then return false end
  local grant = self:grant(format.place(place).lock_id)
  return not (grant and grants.is_own(grant, attempt))
end

-- A look while the resource is shared: see look.lua.
function readers:look(process, attempt, place, how)
  local keys = self.keys
  local lost = self:is_lost(attempt, place) and 1 or 0
  redis.call('PEXPIRE', keys[QUEUE], QUEUE_MS)
  local again_ms, own = PROVISIONAL_MS, {}
  local called = redis.call('ZRANGE', keys[CALLED], 0, -1, 'WITHSCORES')
  for i = 1, #called, 2 do
    local owner, handed = string.match(called[i], '^(%x+):(%x+):')
    local lapses_ms = called[i + 1] - LAPSED_MS - self.now
    if owner == process then
      -- The notice may have been lost, so this answer repeats it.
      table.insert(own, handed)
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
  local last = queue.last_ticket(keys) or '0'
  if how.lapsed then
    for i = 1, #called, 2 do
      if string.match(called[i], '^%x+') == how.lapsed then
        redis.call('ZREM', keys[CALLED], called[i])
      end
    end
  end
  local handed = self:settle(how)
  local soon = false
  if how.writer and not how.lapsed then
    how.lapsed, soon = self:suspect(how.writer, process, place ~= '')
    if how.lapsed then handed = self:settle(how) end
  end
  local open = handed == HANDED or soon or self:count_in(keys[CALLED]) > 0
  if handed == MORE then
    again_ms = 0
  elseif not open then
    again_ms = redis.call('PTTL', keys[RESOURCE])
  end
  return { again_ms, open and 1 or 0, lost, table.concat(own, ' '), how.lapsed or '', last }
end
