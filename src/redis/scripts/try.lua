local resource, counter = KEYS[1], KEYS[2]
local how = { monitored = ARGV[8] == '1', holders_max = tonumber(ARGV[9]) }
local queue = '\1q' .. resource

local own = find_own(resource, counter, grant)
if own then return own end
local shared = shared_by(resource, value)
local same
if shared then
  own, same = shared:find_own(counter, asked)
  if own then
    own[4] = shared:settle(how)
    return own
  end
end
local count = shared and shared:count() or 0
if count > 0 then
  if asked.mode ~= 's' or same then
    return shared:refuse_held(0)
  end
  if count >= how.holders_max then return refuse(resource, { 'many' }) end
  if redis.call('EXISTS', queue) == 0 then
    return shared.make(resource, counter, asked, shared)
  end
  -- Perhaps only dead processes wait, or those who do may have their turn.
  local handed = shared:admit(how)
  if redis.call('EXISTS', queue) == 0 and shared:count() < how.holders_max then
    local token = shared.make(resource, counter, asked, shared)
    return { 'made', token, asked.lock_id, handed }
  end
  local look = (how.called or handed == 2) and LOOK_NOW or how.writer and LOOK_SOON or 0
  return shared:refuse_held(look)
end
local handed
if shared then
  handed = shared:settle(how)
elseif value or redis.call('EXISTS', resource) == 1 then
  return refuse(resource, { 'held', 0 })
elseif asked.mode == 's' and redis.call('EXISTS', queue) == 0 then
  handed = 0
else
  -- The resource is free, but there is a queue. The first waiter whose process listens gets the
  -- resource; if all of them are dead, the caller does. Otherwise the caller must look, because
  -- perhaps nobody else does if the hand-over lapses or more dead waiters are left.
  handed = handover(resource, how)
end
if handed ~= 0 then return { 'held', LOOK_NOW } end
if asked.mode == 's' then return sharing().make(resource, counter, asked) end
return make_grant(resource, counter, asked.lock_id, asked.rest, asked.ttl_ms)
