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
-- drops dead waiters there. A writer stops it, and its process is returned in `how.writer`. The
-- result is that of `queue.hand_over`, but FREE also if the waiters must keep waiting, and HANDED
-- also if an earlier hand-over is not confirmed yet. `how.called` is whether there is a new one.
function readers:admit(how)
  local handed = self:admit_first(how)
  questions.ask_in_doubt(self.keys, how)
  return handed
end

function readers:admit_first(how)
  local keys = self.keys
  if redis.call('EXISTS', keys[QUEUE]) == 0 then return FREE end
  local dead = {}
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
        is_alive = how.unheard == IN_DOUBT
          or (redis.pcall('PUBSUB', 'NUMSUB', '\1n' .. process)[2] or 1) > 0
        if is_alive then
          how.writer = process
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

-- Whether the place of an attempt is lost.
function readers:is_lost(attempt, place)
  if place == '' or redis.call('ZSCORE', self.keys[QUEUE], place) then return false end
  if redis.call('ZSCORE', self.keys[CALLED], place) then return false end
  local grant = self:grant(format.place(place).lock_id)
  return not (grant and grants.is_own(grant, attempt))
end

-- A look while the resource is shared: see look.lua.
function readers:look(attempt, place, how)
  local keys = self.keys
  local lost = self:is_lost(attempt, place) and 1 or 0
  redis.call('PEXPIRE', keys[QUEUE], QUEUE_MS)
  local again_ms, own, lapsed = PROVISIONAL_MS, {}, {}
  local called = redis.call('ZRANGE', keys[CALLED], 0, -1, 'WITHSCORES')
  for i = 1, #called, 2 do
    local owner, handed = string.match(called[i], '^(%x*):?(%x*)')
    local lapses_ms = called[i + 1] - LAPSED_MS - self.now
    if owner == how.process then
      -- The notice may have been lost, so this answer repeats it.
      table.insert(own, handed)
      again_ms = math.min(again_ms, math.max(lapses_ms, FOREIGN_MS))
    elseif lapses_ms <= 0 or how.lapsed and how.lapsed[owner] then
      how.lapsed = how.lapsed or {}
      how.lapsed[owner] = true
      table.insert(lapsed, called[i])
    else
      again_ms = math.min(again_ms, lapses_ms)
    end
  end
  own = table.concat(own, ' ')
  local answer_ms = questions.check(keys, how, how.lapsed)
  if answer_ms == 0 then return { 0, 0, lost, own } end
  if how.lapsed then redis.call('ZREM', keys[CALLED], unpack(lapsed)) end
  local handed = self:settle(how)
  if how.writer and how.writer ~= how.process then
    -- It keeps readers out, and nothing was handed over to it that could lapse.
    answer_ms = questions.check(keys, how, true)
  end
  if handed == MORE then return { 0, 0, lost, own } end
  local is_open = answer_ms or handed == HANDED or self:count_in(keys[CALLED]) > 0
  if answer_ms then
    again_ms = math.min(again_ms, answer_ms)
  elseif not is_open then
    again_ms = redis.call('PTTL', keys[RESOURCE])
  end
  return { again_ms, is_open and 1 or 0, lost, own }
end
