-- The shared grants of a resource. Making a function costs as much as a command does, so those
-- for shared grants are made only when a script comes across one. `Shared` is their class.
--
-- The key of a resource that is shared has a mark as its value, which no client knows and no
-- lock ID equals, and it expires with the last of the grants and hand-overs. The rest is in
-- other keys, which are believed only while the hash has the same mark:
--
--   \1r  hash: `m` the mark, `t` the newest token, `l` and a lock ID: the grant's record, `q` and
--        a request ID, or `g` and a public ID: the lock ID of its grant, `d`: see
--        shared_look.lua
--   \1e  sorted set: the lock IDs by the ends of their grants
--   \1t  sorted set: the lock IDs by the tokens of their grants
--   \1p  sorted set: the places of hand-overs that are not confirmed yet, by their ends
--
-- A grant or a hand-over past its end does not exist for anybody.

function Shared.new(resource, mark)
  local now = end_of(redis.call('TIME'), 0)
  local shared = {
    resource = resource,
    mark = mark,
    now = tonumber(now),
    now_text = now,
    queue = '\1q' .. resource,
    records = '\1r' .. resource,
    ends = '\1e' .. resource,
    tokens = '\1t' .. resource,
    called = '\1p' .. resource,
  }
  return setmetatable(shared, Shared)
end

-- Those of a resource whose key has this mark; nil if nothing is known of them.
function Shared.marked(resource, mark)
  if redis.call('HGET', '\1r' .. resource, 'm') ~= mark then return nil end
  return Shared.new(resource, mark)
end

-- Makes a resource shared, without a grant yet. What is left of earlier shared grants may be
-- there, if somebody deleted the resource's key. No other mark is a hash of the attempt together
-- with its token or, if it has none yet, the time.
function Shared.begin(resource, attempt, token)
  local shared = Shared.new(resource)
  local hash = redis.sha1hex(attempt .. (token or shared.now_text))
  shared.mark = '\1s' .. string.sub(hash, 1, 32)
  shared:forget_all()
  redis.call('HSET', shared.records, 'm', shared.mark)
  redis.call('SET', resource, shared.mark, 'PX', CALLED_MS)
  return shared
end

-- Deletes what is known of the grants and hand-overs.
function Shared:forget_all()
  redis.call('UNLINK', self.records, self.ends, self.tokens, self.called)
end

-- Ends all grants and hand-overs.
function Shared:finish()
  redis.call('UNLINK', self.resource, self.records, self.ends, self.tokens, self.called)
end

function Shared.read_record(record)
  local token, rest = string.match(record or '', '^(%d+):(.*)$')
  local grant = read_rest(rest)
  if grant then grant.token = token end
  return grant
end

-- The time in milliseconds, as text, this long after the script began.
function Shared:after(ttl_ms)
  return string.format('%.0f', self.now + ttl_ms)
end

function Shared:is_live(score)
  return score and tonumber(score) >= self.now
end

-- The live grant with this lock ID.
function Shared:grant(lock_id)
  if not self:is_live(redis.call('ZSCORE', self.ends, lock_id)) then return nil end
  return Shared.read_record(redis.call('HGET', self.records, 'l' .. lock_id))
end

function Shared:newest_token()
  return redis.call('HGET', self.records, 't') or '0'
end

function Shared:count_live(key)
  return redis.call('ZCOUNT', key, self.now_text, '+inf')
end

-- How many grants and hand-overs are live.
function Shared:count()
  return self:count_live(self.ends) + self:count_live(self.called)
end

-- Answers that the caller holds nothing here.
function Shared:refuse_owner()
  return refuse(self.resource, { 'not', self:count() > 0 and 1 or 0 })
end

-- Starts the TTL of a live grant again. If Redis is out of memory, it refuses the first write of
-- a script if that may add data, so another write comes first.
function Shared:extend(lock_id, ttl_ms)
  redis.call('DEL', '\1-' .. self.resource)
  redis.call('ZADD', self.ends, self:after(ttl_ms), lock_id)
end

-- Makes the resource's key expire with the last of the grants and hand-overs. The others expire
-- KEPT_MS later, so that few changes among the grants have to move that. Returns whether there is
-- one.
function Shared:move_end()
  local last = -1
  for _, key in ipairs({ self.ends, self.called }) do
    last = math.max(last, redis.call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2] or -1)
  end
  if last < self.now then return false end
  -- A key whose expiry is not in the future is deleted, though this one lasts a moment longer.
  local ends_ms = math.max(last, self.now + 1)
  redis.call('PEXPIREAT', self.resource, string.format('%.0f', ends_ms))
  -- Sorted sets that are new have no expiry.
  local left_ms = self.added and 0 or redis.call('PTTL', self.records)
  local ends_in_ms = ends_ms - self.now
  -- The clock may have advanced a little since `now`.
  if left_ms < ends_in_ms + 1000 or left_ms > ends_in_ms + 2 * KEPT_MS then
    local kept_ms = string.format('%.0f', ends_ms + KEPT_MS)
    for _, key in ipairs({ self.records, self.ends, self.tokens }) do
      redis.call('PEXPIREAT', key, kept_ms)
    end
  end
  return true
end
