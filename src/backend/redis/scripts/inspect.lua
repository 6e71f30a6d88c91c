-- Tells of each resource how many grants it has, how many wait for it, and a page of its grants;
-- or false, if one of its keys has a type that leasehold does not give it. Somebody else wrote that
-- key, and one such key must not keep all other resources from being listed.
local after_ms, after_id, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])

local function tell(resource)
  local waiters = redis.call('ZCARD', '\1q' .. resource)
  local grant, value = live_grant(resource)
  local shared = not grant and shared_by(resource, value)
  if shared then
    local views, next = shared:page(after_ms, after_id, limit)
    return { shared:count_live(shared.ends), waiters, views, next }
  end
  local left_ms = redis.call('PTTL', resource)
  -- A hand-over is nobody's grant yet.
  if left_ms == -2 or grant and grant.process then return { 0, waiters, {} } end
  local view = { '', 'x', '', '', left_ms }
  if grant then view = { grant.id, grant.mode, grant.holder, grant.token, left_ms } end
  return { 1, waiters, { view } }
end

local told = {}
for i, resource in ipairs(KEYS) do
  local is_read, view = pcall(tell, resource)
  if not is_read and not string.find(tostring(view), 'WRONGTYPE', 1, true) then error(view, 0) end
  told[i] = is_read and view
end
return refuse(KEYS[1], told)
