local resource = KEYS[1]
local attempt, place, only_called = ARGV[1], ARGV[2], ARGV[3] == '1'
local how = { monitored = ARGV[4] == '1', holders_max = tonumber(ARGV[5]) }
local grant, value = live_grant(resource)
if grant and grant.attempt == attempt and (grant.process or not only_called) then
  local handed = handover(resource, how)
  -- See unlock.lua.
  if handed == 1 and grant.given then redis.call('DEL', '\1h' .. resource) end
  return { 'ok', handed }
end
local shared = not grant and shared_by(resource, value)
if shared and shared:withdraw(attempt, place, only_called) then
  return { 'ok', shared:settle(how) }
end
if redis.call('ZREM', '\1q' .. resource, place) == 1 then
  -- The readers behind a writer that leaves need not wait until the others have ended.
  return { 'ok', shared and shared:settle(how) or 0 }
end
if shared then return shared:refuse_owner() end
return refuse(resource, { 'not', value and 1 or 0 })
