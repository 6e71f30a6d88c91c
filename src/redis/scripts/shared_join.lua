-- The token of a shared grant in the two usual cases: it is the first of its resource, or it joins
-- others where nothing else is to be done: nobody waits, nothing has expired, and no grant has the
-- same lock ID or request ID. Functions, tables and numbers that become text cost as much as
-- commands do, so this makes few of them. Drawing the token needs memory, so it comes before any
-- other write.
local first
if ARGV[7] == 's' then
  local resource, lock_id, request = KEYS[1], ARGV[1], ARGV[5]
  local records, ends, tokens = '\1r' .. resource, '\1e' .. resource, '\1t' .. resource
  local queue, called = '\1q' .. resource, '\1p' .. resource
  local own, replay = 'l' .. lock_id, 'q' .. request
  local exist = redis.call('EXISTS', resource, queue, records, ends, tokens, called)
  local joins
  -- These are all keys but the queue and that of the hand-overs, if four exist.
  if exist == 4 then
    local known = redis.call('HMGET', records, 'm', own, replay)
    -- The value is an error, and not a mark, if the key has another type.
    joins = known[1] and not known[2] and not known[3]
      and known[1] == redis.pcall('GET', resource)
  end
  local count = joins and redis.call('ZCARD', ends)
  if exist == 0 or joins and count > 0 and count < tonumber(ARGV[9]) then
    local time = redis.call('TIME')
    local clock = time[1] .. string.rep('0', 6 - #time[2]) .. time[2]
    local now = string.sub(clock, 1, -4)
    local last = now + ARGV[2]
    -- Of a quotient, %d leaves the fraction out.
    local ends_ms = string.format('%d%03d', last / 1000, last % 1000)
    -- Whether no grant ends later, and none has expired.
    local is_last = joins and redis.call('ZCOUNT', ends, now, ends_ms) == count
    if is_last or not joins or redis.call('ZCOUNT', ends, '-inf', '(' .. now) == 0 then
      local token = mint(KEYS[2], time, clock)
      local record, id = token .. ':' .. ARGV[3], 'g' .. ARGV[4]
      local keeps = true
      if joins then
        local last_ms = ends_ms
        if not is_last then
          last_ms = redis.call('ZRANGE', ends, '-1', '-1', 'WITHSCORES')[2]
          last = tonumber(last_ms)
        end
        redis.call('HSET', records, 't', token, own, record, id, lock_id)
        redis.call('PEXPIREAT', resource, last_ms)
        -- The clock may have advanced a little since `now`.
        keeps = redis.call('PTTL', tokens) < last - now + 1000
      else
        local mark = '\1s' .. string.sub(redis.sha1hex(ARGV[4] .. token), 1, 32)
        redis.call('HSET', records, 'm', mark, 't', token, own, record, id, lock_id)
        redis.call('SET', resource, mark, 'PXAT', ends_ms)
      end
      if request ~= '' then redis.call('HSET', records, replay, lock_id) end
      redis.call('ZADD', ends, ends_ms, lock_id)
      redis.call('ZADD', tokens, token, lock_id)
      -- See Shared:move_end.
      if keeps then
        local kept = last + KEPT_MS
        local kept_ms = string.format('%d%03d', kept / 1000, kept % 1000)
        redis.call('PEXPIREAT', records, kept_ms)
        redis.call('PEXPIREAT', ends, kept_ms)
        redis.call('PEXPIREAT', tokens, kept_ms)
      end
      first = token
    end
  end
end
