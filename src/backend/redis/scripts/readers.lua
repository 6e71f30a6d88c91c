-- Shared grants. The key of a resource that is shared has a mark as its value, which no client
-- knows and no lock ID equals, and it expires with the last of the grants and hand-overs. The
-- rest is in other keys, which are believed only while the hash has the same mark:
--
--   \1r  hash: `m` the mark, `t` the newest token, `l` and a lock ID: the grant's record, `q` and
--        a request ID: the lock ID of its grant, `d`: see suspect.lua
--   \1e  sorted set: the lock IDs by the ends of their grants
--   \1t  sorted set: the lock IDs by the tokens of their grants
--   \1p  sorted set: the places of hand-overs that are not confirmed yet, by their ends
--
-- A grant or a hand-over past its end does not exist for anybody.

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function sharing(resource, mark)
  return {
    resource = resource,
    mark = mark,
    now = now_ms(),
    records = '\1r' .. resource,
    ends = '\1e' .. resource,
    tokens = '\1t' .. resource,
    called = '\1p' .. resource,
  }
end

-- The shared grants of a resource whose key has this value; nil if it is not shared.
local function shared_by(resource, value)
  if not value or string.sub(value, 1, 2) ~= '\1s' then return nil end
  if redis.call('HGET', '\1r' .. resource, 'm') ~= value then return nil end
  return sharing(resource, value)
end

-- Makes a resource shared, without a grant yet. What is left of earlier shared grants may be
-- there, if somebody deleted the resource's key.
local function begin_sharing(resource, attempt)
  local shared = sharing(resource)
  local seed = attempt .. string.format('%.0f', shared.now)
  shared.mark = '\1s' .. string.sub(redis.sha1hex(seed), 1, 32)
  redis.call('UNLINK', shared.records, shared.ends, shared.tokens, shared.called)
  redis.call('HSET', shared.records, 'm', shared.mark)
  redis.call('SET', resource, shared.mark, 'PX', PROVISIONAL_MS + LAPSED_MS)
  return shared
end

local function read_record(record)
  local token, rest = string.match(record or '', '^(%d+):(.*)$')
  local grant = read_rest(rest)
  if grant then grant.token = token end
  return grant
end

local function is_live(shared, score)
  return score and tonumber(score) >= shared.now
end

-- The live shared grant with this lock ID.
local function reader(shared, lock_id)
  if not is_live(shared, redis.call('ZSCORE', shared.ends, lock_id)) then return nil end
  return read_record(redis.call('HGET', shared.records, 'l' .. lock_id))
end

local function count_live(shared, key)
  return redis.call('ZCOUNT', key, shared.now, '+inf')
end

-- How many shared grants and hand-overs are live.
local function count_sharing(shared)
  return count_live(shared, shared.ends) + count_live(shared, shared.called)
end

-- The holder of the first live grant. Behind many grants that have expired it is not searched.
local function first_holder(shared)
  for _, range in ipairs({ { 0, 0 }, { 1, SHARED_CHUNK - 1 } }) do
    for _, lock_id in ipairs(redis.call('ZRANGE', shared.tokens, unpack(range))) do
      local grant = reader(shared, lock_id)
      if grant then return grant.holder end
    end
  end
  return ''
end

-- Removes grants. A request ID may belong to another grant by now.
local function forget(shared, lock_ids)
  local fields, requests, asked_by = {}, {}, {}
  for i, lock_id in ipairs(lock_ids) do fields[i] = 'l' .. lock_id end
  local records = redis.call('HMGET', shared.records, unpack(fields))
  for i, lock_id in ipairs(lock_ids) do
    local grant = read_record(records[i])
    if grant and grant.request ~= '' then
      table.insert(requests, 'q' .. grant.request)
      table.insert(asked_by, lock_id)
    end
  end
  if #requests > 0 then
    local found = redis.call('HMGET', shared.records, unpack(requests))
    for i, lock_id in ipairs(asked_by) do
      if found[i] == lock_id then table.insert(fields, requests[i]) end
    end
  end
  redis.call('HDEL', shared.records, unpack(fields))
  redis.call('ZREM', shared.ends, unpack(lock_ids))
  redis.call('ZREM', shared.tokens, unpack(lock_ids))
end

-- Removes some of the grants that have expired. Each new grant removes more than one, so they
-- cannot pile up.
local function drop_expired(shared)
  local before = '(' .. string.format('%.0f', shared.now)
  local expired =
    redis.call('ZRANGEBYSCORE', shared.ends, '-inf', before, 'LIMIT', 0, SHARED_CHUNK)
  if #expired > 0 then forget(shared, expired) end
end

-- Starts the TTL of a live grant again. If Redis is out of memory, it refuses the first write of
-- a script if that may add data, so another write comes first.
local function extend_reader(shared, lock_id, ttl_ms)
  redis.call('DEL', '\1-' .. shared.resource)
  redis.call('ZADD', shared.ends, shared.now + ttl_ms, lock_id)
end

local function add_reader(shared, token, grant, ttl_ms)
  -- An expired grant may have had the same lock ID and another request ID.
  if grant.given then forget(shared, { grant.lock_id }) end
  local fields = { 't', token, 'l' .. grant.lock_id, token .. ':' .. grant.rest }
  if grant.request ~= '' then
    table.insert(fields, 'q' .. grant.request)
    table.insert(fields, grant.lock_id)
  end
  redis.call('HSET', shared.records, unpack(fields))
  redis.call('ZADD', shared.ends, shared.now + ttl_ms, grant.lock_id)
  redis.call('ZADD', shared.tokens, token, grant.lock_id)
end

-- Makes all keys expire with the last of the grants and hand-overs. Returns whether there is one.
local function move_end(shared)
  local last = -1
  for _, key in ipairs({ shared.ends, shared.called }) do
    last = math.max(last, redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] or -1)
  end
  if last < shared.now then return false end
  -- A key whose expiry is not in the future is deleted, though this one lasts a moment longer.
  last = math.max(last, shared.now + 1)
  for _, key in ipairs({ shared.resource, shared.records, shared.ends, shared.tokens }) do
    redis.call('PEXPIREAT', key, last)
  end
  shared.left_ms = last - shared.now
  return true
end

-- Makes a shared grant: the first of the resource, or beside others. Drawing the token needs
-- memory, so it comes before any other write.
local function make_reader(resource, counter, asked, shared)
  local token = mint(counter)
  if shared then drop_expired(shared) else shared = begin_sharing(resource, asked.attempt) end
  add_reader(shared, token, read_rest(asked.rest), asked.ttl_ms)
  move_end(shared)
  return token
end

-- Makes the grant of a resource that is free.
local function make_first(resource, counter, asked)
  if asked.mode == 's' then return make_reader(resource, counter, asked) end
  return make_grant(resource, counter, asked.lock_id, asked.rest, asked.ttl_ms)
end
