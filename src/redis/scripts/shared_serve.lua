function Shared:note_called(called)
  redis.call('ZADD', self.called, unpack(called))
  redis.call('PEXPIRE', self.called, CALLED_MS)
  self:move_end()
end

-- When a hand-over that is made now ends. It remains for a while after it has lapsed, so that a
-- look can see which process it was.
function Shared:called_until()
  return self:after(CALLED_MS)
end

-- Hands the resource over to the shared waiters at the head of the queue, some at a time, and
-- drops dead waiters there. An exclusive waiter stops it, and is returned in `how.writer`. The
-- result is that of `handover`, but 0 also if the waiters must keep waiting, and 1 also if an
-- earlier hand-over is not confirmed yet. `how.called` is whether there is a new one.
function Shared:admit(how)
  if redis.call('EXISTS', self.queue) == 0 then return 0 end
  local dead = {}
  if how.lapsed then dead[how.lapsed] = true end
  local open = self:count_live(self.called)
  local room = math.min(BATCH, how.holders_max - self:count_live(self.ends)) - open
  local batch = math.max(room, 1)
  local result
  for _ = 1, CHUNK / BATCH do
    local served, called = {}, {}
    local places = redis.call('ZRANGE', self.queue, 0, batch - 1)
    if #places < batch then result = 0 end
    for _, place in ipairs(places) do
      local process = string.sub(place, 1, 32)
      local attempt, mode = string.match(place, '^%d+:(%x+):(%a)', 33)
      local alive = attempt and not dead[process]
      if alive and mode == 's' then
        if room <= 0 then
          result = 0
          break
        end
        alive = call(process, attempt, self.resource, how)
        if alive then
          room = room - 1
          table.insert(called, self:called_until())
          table.insert(called, place)
        end
      elseif alive then
        -- Without the permission to ask, it counts as alive.
        alive = (redis.pcall('PUBSUB', 'NUMSUB', '\1n' .. process)[2] or 1) > 0
        if alive then
          how.writer = { process = process, attempt = attempt }
          result = 0
          break
        end
      end
      if attempt and not alive then dead[process] = true end
      table.insert(served, place)
    end
    if #served > 0 then redis.call('ZREM', self.queue, unpack(served)) end
    if #called > 0 then
      open = open + #called / 2
      how.called = true
      self:note_called(called)
    end
    if result then return open > 0 and 1 or 0 end
    batch = BATCH
  end
  return 2
end

-- Serves those who wait after something has changed among the grants or in the queue. If none is
-- left, hands the resource over.
function Shared:settle(how)
  if self:move_end() then return self:admit(how) end
  self:finish()
  return handover(self.resource, how)
end

-- Hands a resource that is free over to this place, and to the shared waiters behind it.
function Shared.start(resource, attempt, place, how)
  redis.call('DEL', '\1h' .. resource)
  local shared = Shared.begin(resource, attempt)
  shared:note_called({ shared:called_until(), place })
  return shared:admit(how) == 2 and 2 or 1
end
