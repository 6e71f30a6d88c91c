-- The cases besides that of a new exclusive attempt.
local resource, counter = KEYS[1], KEYS[2]
local how = { monitored = ARGV[8] == '1', holders_max = tonumber(ARGV[9]) }
local place, again = ARGV[10] .. asked.rest, ARGV[11] == '1'
local queue = '\1q' .. resource

local grant, value = live_grant(resource)
local shared = not grant and shared_by(resource, value)
if again or asked.request ~= '' then
  local own
  if shared then
    own = shared:find_own(counter, asked, place)
  else
    own = find_own(resource, counter, grant)
  end
  if own then
    -- The attempt waits no more.
    if again and own[1] ~= 'made' then redis.call('ZREM', queue, place) end
    if shared then own[4] = shared:settle(how) end
    return own
  end
end
-- This comes before any write, because a write needs memory.
if again and redis.call('ZSCORE', queue, place) then
  return refuse(resource, { 'queued', UNKNOWN_MS })
end
if asked.mode == 's' then
  local count = shared and shared:count() or 0
  if shared and shared:grant(asked.lock_id) then return refuse(resource, { 'taken' }) end
  if redis.call('EXISTS', queue) == 0 then
    if count > 0 and count < how.holders_max then
      return { 'made', shared.make(resource, counter, asked, shared), asked.lock_id }
    end
    if redis.call('EXISTS', resource) == 0 then
      return { 'made', sharing().make(resource, counter, asked), asked.lock_id }
    end
  end
end
