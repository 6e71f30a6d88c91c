-- Tells of each resource how many grants it has, how many wait for it, and a page of its grants.
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
for i, resource in ipairs(KEYS) do told[i] = tell(resource) end
return refuse(KEYS[1], told)
