-- The shared grants of a resource: its readers.
--
-- The key of a resource that is shared has a mark as its value, which no client knows and no
-- lock ID equals, and it expires with the last of the grants and hand-overs. The rest is in
-- other keys, which are believed only while the hash has the same mark:
--
--   READERS  hash: `m` the mark, `t` the newest token, `l` and a lock ID: the grant's record, `q`
--            and a request ID, or `g` and a public ID: the lock ID of its grant
--   ENDS     sorted set: the lock IDs by the ends of their grants
--   TOKENS   sorted set: the lock IDs by the tokens of their grants
--   CALLED   sorted set: the places of hand-overs that are not confirmed yet, by their ends
--
-- A grant or a hand-over past its end does not exist for anybody.
readers.__index = readers

-- Whether a resource whose key has this value is shared.
function readers.is_mark(value)
  return value and string.sub(value, 1, 2) == '\1s'
end

-- Whether a verb needs the keys of readers, and its caller did not declare them.
function readers.are_missing(keys, value, mode)
  return not keys[READERS] and (mode == 's' or readers.is_mark(value))
end

local function new(keys, now_us, mark)
  local now = string.sub(now_us, 1, -4)
  local self = { keys = keys, mark = mark, now_us = now_us, now = tonumber(now), now_text = now }
  return setmetatable(self, readers)
end

-- Those of a resource whose key has this value; nil if it is no mark, or nothing is known of them.
function readers.of(keys, value)
  if not readers.is_mark(value) then return nil end
  if redis.call('HGET', keys[READERS], 'm') ~= value then return nil end
  return new(keys, clock(), value)
end

-- Makes a resource shared, without a grant yet. What is left of earlier shared grants may be
-- there, if somebody deleted the resource's key. No other mark is a hash of this attempt and time.
function readers.begin(keys, attempt)
  local now_us = clock()
  local hash = redis.sha1hex(attempt .. ':' .. now_us)
  local self = new(keys, now_us, '\1s' .. string.sub(hash, 1, 32))
  redis.call('UNLINK', keys[RECORD], keys[READERS], keys[ENDS], keys[TOKENS], keys[CALLED])
  redis.call('HSET', keys[READERS], 'm', self.mark)
  redis.call('SET', keys[RESOURCE], self.mark, 'PX', CALLED_MS)
  self.is_new = true
  return self
end

-- Ends all grants and hand-overs.
function readers:finish()
  local keys = self.keys
  redis.call('UNLINK', keys[RESOURCE], keys[READERS], keys[ENDS], keys[TOKENS], keys[CALLED])
end

-- The time in milliseconds, as text, this long after the function began.
function readers:after(ms)
  return string.format('%.0f', self.now + ms)
end

function readers:is_live(score)
  return score and tonumber(score) >= self.now
end

-- The live grant with this lock ID.
function readers:grant(lock_id)
  if not self:is_live(redis.call('ZSCORE', self.keys[ENDS], lock_id)) then return nil end
  return format.grant(redis.call('HGET', self.keys[READERS], 'l' .. lock_id))
end

-- Identifies the present grants, unlike any that were there before or will be later.
function readers:target()
  local newest = redis.call('HGET', self.keys[READERS], 't') or '0'
  return 'r' .. string.sub(self.mark, 3) .. ':' .. newest
end

-- How many live grants or hand-overs there are in the sorted set.
function readers:count_in(key)
  return redis.call('ZCOUNT', key, self.now_text, '+inf')
end

-- How many grants and hand-overs are live.
function readers:count()
  return self:count_in(self.keys[ENDS]) + self:count_in(self.keys[CALLED])
end

-- Starts the TTL of a live grant again.
function readers:extend(lock_id, ttl_ms)
  redis.call('ZADD', self.keys[ENDS], self:after(ttl_ms), lock_id)
end

-- Adds a grant, and returns its token.
function readers:add(lock_id, ttl_ms, id, last, terms)
  local keys = self.keys
  local grant = format.terms(terms)
  if self.is_new then
    self.is_new = false
  else
    self:drop_expired()
    -- An expired grant may have had the same lock ID and another request ID.
    if grant.is_given then self:forget({ lock_id }) end
  end
  local token = draw_token(keys[COUNTER], self.now_us)
  local record = token .. ':' .. format.rest(id, last, terms)
  local fields = { 't', token, 'l' .. lock_id, record, 'g' .. id, lock_id }
  if grant.request ~= '' then
    table.insert(fields, 'q' .. grant.request)
    table.insert(fields, lock_id)
  end
  redis.call('HSET', keys[READERS], unpack(fields))
  redis.call('ZADD', keys[ENDS], self:after(ttl_ms), lock_id)
  redis.call('ZADD', keys[TOKENS], token, lock_id)
  return token
end

-- Removes some of the grants that have expired. Each new grant removes more than one, so they
-- cannot pile up.
function readers:drop_expired()
  local before = '(' .. self.now_text
  local expired = redis.call('ZRANGEBYSCORE', self.keys[ENDS], '-inf', before, 'LIMIT', '0', BATCH)
  if #expired > 0 then self:forget(expired) end
end

-- Removes grants. A request ID may belong to another grant by now.
function readers:forget(lock_ids)
  local keys = self.keys
  local fields, requests, asked_by = {}, {}, {}
  for i, lock_id in ipairs(lock_ids) do fields[i] = 'l' .. lock_id end
  local records = redis.call('HMGET', keys[READERS], unpack(fields))
  for i, lock_id in ipairs(lock_ids) do
    local grant = format.grant(records[i])
    if grant then table.insert(fields, 'g' .. grant.id) end
    if grant and (grant.request or '') ~= '' then
      table.insert(requests, 'q' .. grant.request)
      table.insert(asked_by, lock_id)
    end
  end
  if #requests > 0 then
    local found = redis.call('HMGET', keys[READERS], unpack(requests))
    for i, lock_id in ipairs(asked_by) do
      if found[i] == lock_id then table.insert(fields, requests[i]) end
    end
  end
  redis.call('HDEL', keys[READERS], unpack(fields))
  redis.call('ZREM', keys[ENDS], unpack(lock_ids))
  redis.call('ZREM', keys[TOKENS], unpack(lock_ids))
end

-- Ends some of the grants whose tokens are not greater than this one. Returns whether there may
-- be more.
function readers:forget_older(token)
  local older =
    redis.call('ZRANGEBYSCORE', self.keys[TOKENS], '-inf', token, 'LIMIT', '0', BATCH)
  if #older > 0 then self:forget(older) end
  return #older == BATCH
end

-- Makes the resource's key expire with the last of the grants and hand-overs. The others expire
-- KEPT_MS later, so that few changes among the grants have to move that. Returns whether there is
-- one.
function readers:move_end()
  local keys, last = self.keys, -1
  for _, key in ipairs({ keys[ENDS], keys[CALLED] }) do
    last = math.max(last, redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2] or -1)
  end
  if last < self.now then return false end
  -- A key whose expiry is not in the future is deleted, though this one lasts a moment longer.
  local ends_ms = math.max(last, self.now + 1)
  redis.call('PEXPIREAT', keys[RESOURCE], string.format('%.0f', ends_ms))
  -- Sorted sets that are new have no expiry (-1).
  local left_ms = redis.call('PTTL', keys[TOKENS])
  local ends_in_ms = ends_ms - self.now
  -- The clock may have advanced a little since `now`.
  if left_ms < ends_in_ms + 1000 or left_ms > ends_in_ms + 2 * KEPT_MS then
    local kept_ms = string.format('%.0f', ends_ms + KEPT_MS)
    for _, key in ipairs({ keys[READERS], keys[ENDS], keys[TOKENS] }) do
      redis.call('PEXPIREAT', key, kept_ms)
    end
  end
  return true
end
