-- The token of a shared grant in the two usual cases: it is the first of its resource, or it joins
-- others. A function is made only where it is needed. Drawing the token needs memory, so it comes
-- before any other write.
local first
if ARGV[7] == 's' then
  local resource, counter = KEYS[1], KEYS[2]
  local queue, records = '\1q' .. resource, '\1r' .. resource
  local ends, tokens, called = '\1e' .. resource, '\1t' .. resource, '\1p' .. resource
  local exist = redis.call('EXISTS', resource, queue, records, ends, tokens, called)
  if exist == 0 then first = make_first(resource, mint(counter)) end
  if exist == 4 then
    -- Makes the grant that the arguments ask for beside live shared grants, where nobody waits and
    -- nothing else is to be done: nothing has expired, and no grant has the same lock ID or request
    -- ID. Otherwise the result is nil. Of the keys of the resource, four exist. They are the four
    -- that this looks at, so there is neither a queue nor a hand-over.
    local function join()
      local lock_id, request = ARGV[1], ARGV[5]
      local value = redis.call('MGET', resource)[1]
      if string.sub(value or '', 1, 2) ~= '\1s' then return nil end
      local known = redis.call('HMGET', records, 'm', 'l' .. lock_id, 'q' .. request)
      if known[1] ~= value or known[2] or known[3] then return nil end
      local time = redis.call('TIME')
      local oldest = redis.call('ZRANGE', ends, '0', '0', 'WITHSCORES')[2]
      local now = tonumber(end_of(time, 0))
      if not oldest or tonumber(oldest) < now then return nil end
      local count = redis.call('ZCARD', tokens)
      if count == 0 or count >= tonumber(ARGV[9]) then return nil end
      local last = tonumber(redis.call('ZRANGE', ends, '-1', '-1', 'WITHSCORES')[2])
      local token = mint(counter, time)
      local ends_ms = end_of(time, ARGV[2])
      local fields = shared_fields(token, lock_id, ARGV[3], ARGV[4], request)
      last = math.max(last, ends_ms)
      redis.call('HSET', records, unpack(fields))
      redis.call('ZADD', ends, ends_ms, lock_id)
      redis.call('ZADD', tokens, token, lock_id)
      redis.call('PEXPIREAT', resource, string.format('%.0f', last))
      -- The clock may have advanced a little since `now`.
      if redis.call('PTTL', records) < last - now + 1000 then keep(resource, last) end
      return token
    end

    first = join()
  end
end
