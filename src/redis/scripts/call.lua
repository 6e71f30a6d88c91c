local handover

-- Notifies a waiter that its turn has come. Returns whether its process listens: one
-- without a subscriber is dead.
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
