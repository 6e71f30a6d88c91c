-- The fields of a shared grant in the hash of its resource: see shared.lua.
local function shared_fields(token, lock_id, rest, id, request)
  local fields = { 't', token, 'l' .. lock_id, token .. ':' .. rest, 'g' .. id, lock_id }
  if request ~= '' then
    table.insert(fields, 'q' .. request)
    table.insert(fields, lock_id)
  end
  return fields
end

-- Makes the grant that the arguments ask for, of a resource of which no key exists.
local function make_first(resource, token, time)
  local lock_id, ttl_ms, rest, attempt, request = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
  local mark = '\1s' .. string.sub(redis.sha1hex(attempt .. token), 1, 32)
  local fields = shared_fields(token, lock_id, rest, attempt, request)
  local ends_ms = end_of(time, ttl_ms)
  redis.call('HSET', '\1r' .. resource, 'm', mark, unpack(fields))
  redis.call('ZADD', '\1e' .. resource, ends_ms, lock_id)
  redis.call('ZADD', '\1t' .. resource, token, lock_id)
  redis.call('SET', resource, mark, 'PXAT', ends_ms)
  keep(resource, ends_ms)
  return token
end
