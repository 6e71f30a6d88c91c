-- Gives the resource to the first live waiter, provisionally, or frees it.
-- 0: nobody waits; 1: handed over; 2: only dead ones so far, ask again.
-- A process without a subscriber is dead at once; one that is merely silent is
-- known by its missing sign of life, which is looked at when it matters (`doubt`).
-- Whoever waits behind is told when to look, for the releaser may be gone by then.
local function handover(resource, counter, doubt)
  local queue, record = '\1q' .. resource, '\1h' .. resource
  for _ = 1, SKIPS_MAX do
    local entry = redis.call('LPOP', queue)
    if not entry then
      redis.call('DEL', resource, record)
      return 0
    end
    local process, rest = string.sub(entry, 1, 32), string.sub(entry, 33)
    local attempt = string.match(rest, '^%d+:(%x+):%a:%d:%d+:%d+:')
    if attempt and (not doubt or redis.call('EXISTS', '\1a' .. process) == 1) then
      local heard = redis.pcall('PUBLISH', '\1n' .. process, attempt)
      if type(heard) == 'number' and heard > 0 then
        -- Its lock ID proves nothing before it is confirmed: so it is not the
        -- value yet, and what another sets meanwhile is not taken for this grant.
        make_grant(resource, counter, '\1' .. attempt, rest, PROVISIONAL_MS)
        tell_short(resource, PROVISIONAL_MS)
        return 1
      end
    end
  end
  redis.call('DEL', resource, record)
  tell_short(resource, 0)
  return 2
end
