-- Hands the resource over to the first waiter whose process listens, or frees it. Returns 0 if
-- nobody waits, 1 if it was handed over, and 2 if it found only dead waiters so far and must be
-- called again. `how.lapsed` is a process that may listen but did not confirm a hand-over in
-- time. Its waiters and those of dead processes are dropped.
--
-- A hand-over is a value of the resource's key that is not a lock ID. It remains for a while
-- after it has lapsed, so that a look can see which process it was. If the first waiter asks for
-- a shared grant, the resource becomes shared, and those behind it get their turn too.
function handover(resource, how)
  local queue = '\1q' .. resource
  local dead = {}
  if how.lapsed then dead[how.lapsed] = true end
  for _ = 1, CHUNK do
    local place = redis.call('ZPOPMIN', queue)[1]
    if not place then
      redis.call('DEL', resource, '\1h' .. resource)
      return 0
    end
    local process, rest = string.sub(place, 1, 32), string.sub(place, 33)
    local attempt, mode = string.match(rest, '^%d+:(%x+):(%a)')
    if attempt and not dead[process] then
      if call(process, attempt, resource, how) then
        if mode == 's' then return sharing().start(resource, attempt, place, how) end
        redis.call('SET', resource, '\1' .. process .. ':' .. rest, 'PX', CALLED_MS)
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
