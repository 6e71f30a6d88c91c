local resource = KEYS[1]
local force, lock_id, aim = ARGV[1] == '1', ARGV[2], ARGV[3]
-- MGET treats a key of another type as absent; GET fails.
local found = redis.call('MGET', resource, '\1h' .. resource)

-- The usual case of a shared grant comes before the functions that it does not need: nobody waits,
-- and the grant is the only one, or the one of the others that ends last is live. See shared.lua.
if aim == '' and not force and string.sub(found[1] or '', 1, 2) == '\1s' then
  local records, ends, tokens = '\1r' .. resource, '\1e' .. resource, '\1t' .. resource

  -- Returns whether it has ended the grant.
  local function leave()
    local known = redis.call('HMGET', records, 'm', 'l' .. lock_id)
    local grant = read_rest(string.match(known[2] or '', '^%d+:(.*)$'))
    if known[1] ~= found[1] or not grant then return false end
    if redis.call('EXISTS', '\1q' .. resource, '\1p' .. resource) > 0 then return false end
    local now = tonumber(end_of(redis.call('TIME'), 0))
    -- The two that end last, the later one behind the other.
    local two = redis.call('ZRANGE', ends, '-2', '-1', 'WITHSCORES')
    local is_last = two[#two - 1] == lock_id
    local own_ms = is_last and two[#two] or redis.call('ZSCORE', ends, lock_id)
    if not own_ms or tonumber(own_ms) < now then return false end
    if is_last and #two == 2 then
      redis.call('UNLINK', resource, records, ends, tokens, '\1h' .. resource)
      return true
    end
    local last_ms = is_last and two[2] or two[#two]
    if tonumber(last_ms) <= now then return false end
    -- The other keys would exist for too long: see Shared:move_end.
    local kept_max_ms = last_ms - now + 2 * KEPT_MS
    if is_last and redis.call('PTTL', records) > kept_max_ms then return false end
    local fields = { 'l' .. lock_id, 'g' .. grant.id }
    local request = 'q' .. grant.request
    if grant.request ~= '' and redis.call('HGET', records, request) == lock_id then
      table.insert(fields, request)
    end
    redis.call('HDEL', records, unpack(fields))
    redis.call('ZREM', ends, lock_id)
    redis.call('ZREM', tokens, lock_id)
    if is_last then redis.call('PEXPIREAT', resource, last_ms) end
    return true
  end

  if leave() then return { 'ok', 0 } end
end
