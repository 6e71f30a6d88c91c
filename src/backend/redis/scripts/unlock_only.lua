local resource = KEYS[1]
local force, lock_id, aim = ARGV[1] == '1', ARGV[2], ARGV[3]
-- MGET treats a key of another type as absent; GET fails.
local found = redis.call('MGET', resource, '\1h' .. resource)

-- The usual cases of a shared grant that nobody waits for come before the functions that they do
-- not need. See shared.lua.
local leaves
if aim == '' and not force and string.sub(found[1] or '', 1, 2) == '\1s'
  and redis.call('EXISTS', '\1q' .. resource, '\1p' .. resource) == 0
then
  local records, ends, tokens = '\1r' .. resource, '\1e' .. resource, '\1t' .. resource
  local known = redis.call('HMGET', records, 'm', 'l' .. lock_id)
  if known[1] == found[1] and known[2] then
    local now = tonumber(end_of(redis.call('TIME'), 0))
    -- The two that end last, the later one behind the other.
    local two = redis.call('ZRANGE', ends, '-2', '-1', 'WITHSCORES')
    local is_last = two[#two - 1] == lock_id
    local own_ms = tonumber(is_last and two[#two] or redis.call('ZSCORE', ends, lock_id) or '-1')
    if own_ms >= now and is_last and #two == 2 then
      redis.call('UNLINK', resource, records, ends, tokens, '\1h' .. resource)
      return { 'ok', 0 }
    end
    if own_ms >= now then
      local last_ms = is_last and two[2] or two[#two]
      leaves = { record = known[2], now = now, is_last = is_last, last_ms = last_ms }
    end
  end
end
