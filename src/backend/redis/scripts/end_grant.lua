-- Ends the grant with this public ID. No other grant ever has it, so a later sending ends nothing
-- else. A hand-over is not a grant yet.
local resource, id = KEYS[1], ARGV[1]
local how = { monitored = ARGV[2] == '1', holders_max = tonumber(ARGV[3]) }
local grant, value = live_grant(resource)
if grant and grant.id == id and not grant.process then
  local handed = handover(resource, how)
  -- See unlock.lua.
  if handed == 1 and grant.given then redis.call('DEL', '\1h' .. resource) end
  return { 'ok', handed }
end
local shared = not grant and shared_by(resource, value)
if shared then
  local lock_id = redis.call('HGET', shared.records, 'g' .. id)
  if not (lock_id and shared:grant(lock_id)) then return shared:refuse_owner() end
  shared:forget({ lock_id })
  return { 'ok', shared:settle(how) }
end
return refuse(resource, { 'not', value and 1 or 0 })
