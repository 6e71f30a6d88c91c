-- While a resource is shared, the first waiter may be a writer that keeps readers out, and
-- nothing was handed over to it that could lapse. So a look of another process asks its process
-- for a look of its own. A process that has not looked in time counts as silent.
--
-- Returns the silent process, and whether to look again soon. `insistent` is whether the look is
-- on behalf of a waiter; any other is satisfied with an answer of a moment ago.
local function suspect(shared, writer, looker, insistent)
  local doubt = redis.call('HGET', shared.records, 'd') or ''
  local whose, since, answered = string.match(doubt, '^(%x+):(%d+)(%+?)$')
  local known = whose == writer.attempt
  local age_ms = known and shared.now - since or 0
  local function note(text)
    redis.call(
      'HSET', shared.records, 'd',
      writer.attempt .. ':' .. string.format('%.0f', shared.now) .. text)
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
  redis.pcall('PUBLISH', '\1n' .. writer.process, 'look::' .. shared.resource)
  return nil, true
end
