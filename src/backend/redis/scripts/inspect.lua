-- Tells of each resource how many grants it has, how many wait for it, and a page of its grants;
-- or false, if one of its keys has a type that leasehold does not give it. Somebody else wrote that
-- key, and one such key must not keep all other resources from being listed. The lock ID of an
-- exclusive grant is told if its request ID begins with `publishing`.
local after_ms, after_id, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local publishing = ARGV[4]

local names, queues = {}, {}
for i, resource in ipairs(KEYS) do
  names[2 * i - 1], names[2 * i] = resource, '\1h' .. resource
  queues[i] = '\1q' .. resource
end
local values = redis.call('MGET', unpack(names))
local has_queues = redis.call('EXISTS', unpack(queues)) > 0

local function tell(i, resource)
  local waiters = has_queues and redis.call('ZCARD', queues[i]) or 0
  local grant, value = live_grant(resource, { values[2 * i - 1], values[2 * i] })
  -- A hand-over is nobody's grant yet.
  if grant and grant.process then return { 0, waiters, {} } end
  if grant then
    local view = { grant.id, grant.mode, grant.holder, grant.token, grant.left_ms }
    local is_published = string.sub(grant.request, 1, #publishing) == publishing
    return { 1, waiters, { view }, false, is_published and grant.lock_id }
  end
  local shared = shared_by(resource, value)
  if shared then
    local views, next = shared:page(after_ms, after_id, limit)
    return { shared:count_live(shared.ends), waiters, views, next }
  end
  local left_ms = redis.call('PTTL', resource)
  if left_ms == -2 then return { 0, waiters, {} } end
  return { 1, waiters, { { '', 'x', '', '', left_ms } } }
end

local told = {}
for i, resource in ipairs(KEYS) do
  local is_read, view = pcall(tell, i, resource)
  if not is_read and not string.find(tostring(view), 'WRONGTYPE', 1, true) then error(view, 0) end
  told[i] = is_read and view
end
return refuse(KEYS[1], told)
