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
  local records, ends, tokens = '\1r' .. resource, '\1e' .. resource, '\1t' .. resource
  local mark = '\1s' .. string.sub(redis.sha1hex(attempt .. token), 1, 32)
  local fields = shared_fields(token, lock_id, rest, attempt, request)
  local ends_ms = end_of(time, ttl_ms)
  redis.call('HSET', records, 'm', mark, unpack(fields))
  redis.call('ZADD', ends, ends_ms, lock_id)
  redis.call('ZADD', tokens, token, lock_id)
  redis.call('SET', resource, mark, 'PXAT', ends_ms)
  for _, key in ipairs({ records, ends, tokens }) do
    redis.call('PEXPIREAT', key, ends_ms)
  end
  return token
end

-- Makes it if no key of the resource exists. Drawing the token needs memory, so it comes before
-- any other write.
local function try_first(resource, counter)
  local queue, records = '\1q' .. resource, '\1r' .. resource
  local ends, tokens, called = '\1e' .. resource, '\1t' .. resource, '\1p' .. resource
  if redis.call('EXISTS', resource, queue, records, ends, tokens, called) > 0 then return nil end
  return make_first(resource, mint(counter))
end
