local resource = KEYS[1]
local attempt, place, only_called, monitored =
  ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4] == '1'
local grant, value = live_grant(resource)
if grant and grant.attempt == attempt and (grant.process or not only_called) then
  local handed = handover(resource, monitored)
  -- See unlock.lua.
  if handed == 1 and grant.given then redis.call('DEL', '\1h' .. resource) end
  return { 'ok', handed }
end
if redis.call('ZREM', '\1q' .. resource, place) == 1 then return { 'ok', 0 } end
return refuse(resource, { 'not', value and 1 or 0 })
