local resource = KEYS[1]
local attempt, place, only_called = ARGV[1], ARGV[2], ARGV[3] == '1'
local how = { monitored = ARGV[4] == '1', holders_max = tonumber(ARGV[5]) }

-- Ends the shared grant of the attempt, or the hand-over to it. A hand-over to an attempt that
-- does not wait is known by the attempt alone.
local function leave(shared)
  if not only_called then
    local grant = reader(shared, read_rest(string.sub(place, 33)).lock_id)
    if grant and grant.attempt == attempt then
      forget(shared, { grant.lock_id })
      return true
    end
    return redis.call('ZREM', shared.called, place) == 1
  end
  for _, called in ipairs(redis.call('ZRANGE', shared.called, 0, -1)) do
    local _, whose = read_place(called)
    if whose == attempt then return redis.call('ZREM', shared.called, called) == 1 end
  end
  return false
end

local grant, value = live_grant(resource)
if grant and grant.attempt == attempt and (grant.process or not only_called) then
  local handed = handover(resource, how)
  -- See unlock.lua.
  if handed == 1 and grant.given then redis.call('DEL', '\1h' .. resource) end
  return { 'ok', handed }
end
local shared = not grant and shared_by(resource, value)
if shared and leave(shared) then return { 'ok', settle(shared, how) } end
if redis.call('ZREM', '\1q' .. resource, place) == 1 then
  -- The readers behind a writer that leaves need not wait until the others have ended.
  return { 'ok', shared and settle(shared, how) or 0 }
end
local held = shared and count_sharing(shared) > 0 or not shared and value
return refuse(resource, { 'not', held and 1 or 0 })
