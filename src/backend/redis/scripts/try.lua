local resource, counter = KEYS[1], KEYS[2]
local asked = read_asked()
local how = { monitored = ARGV[8] == '1', holders_max = tonumber(ARGV[9]) }
local queue = '\1q' .. resource

if redis.call('EXISTS', resource, queue) == 0 then
  return make_first(resource, counter, asked)
end
local own, value, grant, shared = find_own(resource, counter, asked)
if own then
  if shared then own[4] = settle(shared, how) end
  return own
end
local handed
local count = shared and count_sharing(shared) or 0
if count > 0 then
  local holder = first_holder(shared)
  if asked.mode ~= 's' or reader(shared, asked.lock_id) then
    return refuse(resource, { 'held', holder, 0 })
  end
  if count >= how.holders_max then return refuse(resource, { 'many' }) end
  if redis.call('EXISTS', queue) == 0 then
    return make_reader(resource, counter, asked, shared)
  end
  -- Perhaps only dead processes wait, or those who do may have their turn.
  handed = admit(shared, how)
  if redis.call('EXISTS', queue) == 0 then
    local token = make_reader(resource, counter, asked, shared)
    return { 'made', token, asked.lock_id, handed }
  end
  local look = (how.called or handed == 2) and LOOK_NOW or how.writer and LOOK_SOON or 0
  return refuse(resource, { 'held', holder, look })
elseif shared then
  handed = settle(shared, how)
elseif value or redis.call('EXISTS', resource) == 1 then
  return refuse(resource, { 'held', grant and grant.holder or '', 0 })
else
  -- The resource is free, but there is a queue. The first waiter whose process listens gets the
  -- resource; if all of them are dead, the caller does. Otherwise the caller must look, because
  -- perhaps nobody else does if the hand-over lapses or more dead waiters are left.
  handed = handover(resource, how)
end
if handed == 0 then return make_first(resource, counter, asked) end
return { 'held', '', LOOK_NOW }
