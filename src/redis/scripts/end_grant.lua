-- Ends the grant with this public ID. No other grant ever has it, so a later sending ends nothing
-- else. A hand-over is not a grant yet. With an attempt, `id` is the lock ID instead, and the grant
-- is ended only if this attempt was the last that got it.
local resource, id, by = KEYS[1], ARGV[1], ARGV[2]
local how = { monitored = ARGV[3] == '1', holders_max = tonumber(ARGV[4]) }
local function is_meant(grant)
  if by == '' then return grant.id == id end
  return grant.lock_id == id and string.match(grant.attempt, '%x+$') == by
end
local grant, value = live_grant(resource)
if grant and not grant.process and is_meant(grant) then
  local handed = handover(resource, how)
  -- See unlock.lua.
  if handed == 1 and grant.given then redis.call('DEL', '\1h' .. resource) end
  return { 'ok', handed }
end
local shared = not grant and shared_by(resource, value)
if shared then
  local lock_id = by == '' and redis.call('HGET', shared.records, 'g' .. id) or id
  local reader = shared:grant(lock_id)
  if not (reader and is_meant(reader)) then return shared:refuse_owner() end
  shared:forget({ lock_id })
  return { 'ok', shared:settle(how) }
end
return refuse(resource, { 'not', value and 1 or 0 })
