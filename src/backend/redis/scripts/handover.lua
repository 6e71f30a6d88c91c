-- Tells a waiter that its turn has come. Returns whether its process listens: one without a
-- subscriber is dead.
--
-- PUBLISH also counts subscribers to patterns, so a monitoring client makes dead processes seem
-- alive. If there are such clients (`monitored`), or after a lapse, which they may have caused,
-- direct subscribers are counted too. Otherwise this extra command is saved.
local function call(process, attempt, resource, how)
  local channel = '\1n' .. process
  local heard = redis.pcall('PUBLISH', channel, 'call:' .. attempt .. ':' .. resource)
  if (how.monitored or how.lapsed) and type(heard) == 'number' and heard > 0 then
    heard = redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or heard
  end
  return type(heard) == 'number' and heard > 0
end

-- Whether a process listens, without a message to it.
local function listens(process)
  return (redis.pcall('PUBSUB', 'NUMSUB', '\1n' .. process)[2] or 1) > 0
end

local function read_place(place)
  local attempt, mode = string.match(place, '^%d+:(%x+):(%a)', 33)
  return string.sub(place, 1, 32), attempt, mode
end

-- Hands a resource that is shared to the shared waiters at the head of the queue, some at a
-- time, and drops dead waiters there. An exclusive waiter stops it, and is returned in
-- `how.writer`. The result is that of `handover`, but 0 also if those who wait must wait on, and
-- 1 also if an earlier hand-over is not confirmed yet. `how.called` tells whether there is a new
-- one.
--
-- A hand-over that lapses ends by itself, since its score is its end. It remains for a while
-- after it has lapsed, so that a look can see which process it was.
local function admit(shared, how)
  local queue = '\1q' .. shared.resource
  if redis.call('EXISTS', queue) == 0 then return 0 end
  local dead = {}
  if how.lapsed then dead[how.lapsed] = true end
  local open = count_live(shared, shared.called)
  local room = how.holders_max - open - count_live(shared, shared.ends)
  room = math.max(math.min(room, SHARED_CHUNK - open), 0)
  local batch = math.max(room, 1)
  local result
  for _ = 1, CHUNK / SHARED_CHUNK do
    local served, called = {}, {}
    local places = redis.call('ZRANGE', queue, 0, batch - 1)
    if #places < batch then result = 0 end
    for _, place in ipairs(places) do
      local process, attempt, mode = read_place(place)
      local alive = attempt and not dead[process]
      if alive and mode == 's' then
        if room == 0 then
          result = 0
          break
        end
        alive = call(process, attempt, shared.resource, how)
        if alive then
          room = room - 1
          table.insert(called, shared.now + PROVISIONAL_MS + LAPSED_MS)
          table.insert(called, place)
        end
      elseif alive then
        alive = listens(process)
        if alive then
          how.writer = { process = process, attempt = attempt }
          result = 0
          break
        end
      end
      if not alive and attempt then dead[process] = true end
      table.insert(served, place)
    end
    if #served > 0 then redis.call('ZREM', queue, unpack(served)) end
    if #called > 0 then
      open = open + #called / 2
      how.called = true
      redis.call('ZADD', shared.called, unpack(called))
      redis.call('PEXPIRE', shared.called, PROVISIONAL_MS + LAPSED_MS)
      move_end(shared)
    end
    if result then break end
    batch = SHARED_CHUNK
  end
  if not result then return 2 end
  return open > 0 and 1 or 0
end

-- Hands the resource over to the first waiter whose process listens, or frees it. Returns 0 if
-- nobody waits, 1 if it was handed over, and 2 if it found only dead waiters so far and must be
-- called again. `how.lapsed` is a process that may listen but did not confirm a hand-over in
-- time. Its waiters and those of dead processes are dropped.
--
-- A hand-over is a value of the resource's key that is not a lock ID. It remains for a while
-- after it has lapsed, so that a look can see which process it was. If the first waiter asks for
-- a shared grant, the resource becomes shared, and those behind it get their turn too.
local function handover(resource, how)
  local queue = '\1q' .. resource
  local dead = {}
  if how.lapsed then dead[how.lapsed] = true end
  for _ = 1, CHUNK do
    local place = redis.call('ZPOPMIN', queue)[1]
    if not place then
      redis.call('DEL', resource, '\1h' .. resource)
      return 0
    end
    local process, attempt, mode = read_place(place)
    if attempt and not dead[process] then
      if call(process, attempt, resource, how) then
        if mode == 's' then
          redis.call('DEL', '\1h' .. resource)
          local shared = begin_sharing(resource, attempt)
          redis.call('ZADD', shared.called, shared.now + PROVISIONAL_MS + LAPSED_MS, place)
          redis.call('PEXPIRE', shared.called, PROVISIONAL_MS + LAPSED_MS)
          move_end(shared)
          return admit(shared, how) == 2 and 2 or 1
        end
        local value = '\1' .. process .. ':' .. string.sub(place, 33)
        redis.call('SET', resource, value, 'PX', PROVISIONAL_MS + LAPSED_MS)
        return 1
      end
      dead[process] = true
    end
  end
  if how.lapsed then
    redis.call('PEXPIRE', resource, LAPSED_MS)
  else
    redis.call('DEL', resource, '\1h' .. resource)
  end
  return 2
end

-- Ends all shared grants and hand-overs.
local function end_sharing(shared)
  redis.call(
    'UNLINK', shared.resource, shared.records, shared.ends, shared.tokens, shared.called)
end

-- Serves those who wait after something has changed among the shared grants or in the queue. If
-- none is left, hands the resource over.
local function settle(shared, how)
  if move_end(shared) then return admit(shared, how) end
  end_sharing(shared)
  return handover(shared.resource, how)
end
