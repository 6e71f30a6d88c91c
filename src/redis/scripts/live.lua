-- Reads the record of the current grant. The resource's key may have been deleted, or set by a
-- client that does not know records, perhaps to the same value (an owner's name). So a record
-- belongs to the key only if the key's value is its lock ID and both expire in the same
-- millisecond. Then no record outlives its grant, and a key that another client set or
-- prolonged has no record.
--
-- A hand-over that is not confirmed yet has no record. The key's value is the place of the
-- waiter. It is returned as a grant with a `process` and without a token.
--
-- `found` has the values of both keys, if the caller has read them.
local function live_grant(resource, found)
  found = found or redis.call('MGET', resource, '\1h' .. resource)
  local value, record = found[1], found[2]
  if not value then return nil, value end
  local token, rest = string.match(record or '', '^(%d+):(.*)$')
  local grant = read_rest(rest)
  if grant and grant.lock_id == value then
    grant.left_ms = end_together(resource, '\1h' .. resource)
    if not grant.left_ms then return nil, value end
    grant.token = token
    return grant, value
  end
  local process, place = string.match(value, '^\1(%x+):(.*)$')
  grant = process and read_rest(place)
  if grant then grant.process = process end
  return grant, value
end

-- Starts the TTL of a live grant again.
local function extend(resource, ttl_ms)
  local ends_ms = end_of(redis.call('TIME'), ttl_ms)
  redis.call('PEXPIREAT', resource, ends_ms)
  redis.call('PEXPIREAT', '\1h' .. resource, ends_ms)
end
