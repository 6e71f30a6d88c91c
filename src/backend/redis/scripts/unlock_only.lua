local resource = KEYS[1]
local force, lock_id, aim = ARGV[1] == '1', ARGV[2], ARGV[3]
-- MGET treats a key of another type as absent; GET fails.
local found = redis.call('MGET', resource, '\1h' .. resource)

-- The only shared grant of a resource that nobody waits for. This comes before the functions that
-- it does not need: see shared.lua.
local records = '\1r' .. resource
if aim == '' and not force and string.sub(found[1] or '', 1, 2) == '\1s'
  and redis.call('HGET', records, 'm') == found[1]
then
  local ends, tokens = '\1e' .. resource, '\1t' .. resource
  local first = redis.call('ZRANGE', ends, '0', '1', 'WITHSCORES')
  if first[1] == lock_id and not first[3]
    and redis.call('EXISTS', '\1q' .. resource, '\1p' .. resource) == 0
    and tonumber(first[2]) >= tonumber(end_of(redis.call('TIME'), 0))
  then
    redis.call('UNLINK', resource, records, ends, tokens, '\1h' .. resource)
    return { 'ok', 0 }
  end
end
