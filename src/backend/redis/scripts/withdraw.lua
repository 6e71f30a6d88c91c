local resource, counter = KEYS[1], KEYS[2]
local attempt, entry = ARGV[1], ARGV[2]
local grant, value = live_grant(resource)
if grant and grant.attempt == attempt then
  return { 'ok', handover(resource, counter, false) }
end
if redis.call('LREM', '\1q' .. resource, 1, entry) == 1 then return { 'ok', 0 } end
return refuse(resource, { 'not', value and 1 or 0 })
