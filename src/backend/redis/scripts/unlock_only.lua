local resource = KEYS[1]
local force, lock_id, aim = ARGV[1] == '1', ARGV[2], ARGV[3]
local found = redis.call('MGET', resource, '\1h' .. resource)

-- The only shared grant of a resource that nobody waits for. The key's expiry is the end of this
-- grant, so it is live. This comes before the functions that it does not need: see shared.lua.
if aim == '' and not force and string.sub(found[1] or '', 1, 2) == '\1s' then
  local records, ends, tokens = '\1r' .. resource, '\1e' .. resource, '\1t' .. resource
  local first = redis.call('ZRANGE', ends, '0', '1')
  if first[1] == lock_id and not first[2]
    and redis.call('HGET', records, 'm') == found[1]
    and redis.call('EXISTS', '\1q' .. resource, '\1p' .. resource) == 0
  then
    redis.call('UNLINK', resource, records, ends, tokens)
    return { 'ok', 0 }
  end
end
