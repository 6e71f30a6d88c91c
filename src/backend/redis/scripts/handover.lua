-- Hands the resource over to the first waiter whose process listens, or frees it. Returns 0 if
-- nobody waits, 1 if it was handed over, and 2 if it found only dead waiters so far and must be
-- called again. A process without a subscriber is dead. `lapsed` is a process that may listen
-- but did not confirm a hand-over in time. The waiters of both are dropped.
--
-- PUBLISH also counts subscribers to patterns, so a monitoring client makes dead processes seem
-- alive. If there are such clients (`monitored`), or after a lapse, which they may have caused,
-- direct subscribers are counted too. Otherwise this extra command is saved.
--
-- A hand-over is a value of the resource's key that is not a lock ID. It remains for a while
-- after it has lapsed, so that a look can see which process it was.
local function handover(resource, monitored, lapsed)
  local queue = '\1q' .. resource
  local dead = {}
  if lapsed then dead[lapsed] = true end
  for _ = 1, CHUNK do
    local place = redis.call('ZPOPMIN', queue)[1]
    if not place then
      redis.call('DEL', resource, '\1h' .. resource)
      return 0
    end
    local process, rest = string.sub(place, 1, 32), string.sub(place, 33)
    local attempt = string.match(rest, '^%d+:(%x+):')
    if attempt and not dead[process] then
      local channel = '\1n' .. process
      local heard = redis.pcall('PUBLISH', channel, 'call:' .. attempt .. ':' .. resource)
      if (monitored or lapsed) and type(heard) == 'number' and heard > 0 then
        heard = redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or heard
      end
      if type(heard) == 'number' and heard > 0 then
        redis.call('SET', resource, '\1' .. process .. ':' .. rest, 'PX', PROVISIONAL_MS + LAPSED_MS)
        return 1
      end
      dead[process] = true
    end
  end
  if lapsed then
    redis.call('PEXPIRE', resource, LAPSED_MS)
  else
    redis.call('DEL', resource, '\1h' .. resource)
  end
  return 2
end
