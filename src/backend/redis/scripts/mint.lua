-- Returns the token of the next grant, and the server's time in milliseconds. The token is
-- greater than every earlier one of this counter, and at least the server's time in
-- microseconds, so tokens rise even if the counter is lost. If Redis is out of memory, it
-- refuses the first write, before anything was changed.
local function mint(counter)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local text = string.format('%.0f', now)
  local last = tonumber(redis.call('GETSET', counter, text) or 0) or 0
  -- Ignore a value that is not a valid token, such as one of 2^53 or more.
  if last >= now and last < 9007199254740991 then
    text = string.format('%.0f', last + 1)
    redis.call('SET', counter, text)
  end
  return text, math.floor(now / 1000)
end

-- Makes a grant. Its key and its record expire in the same millisecond. By that `live_grant`
-- distinguishes this key from one that another client has set since.
local function make_grant(resource, counter, value, rest, ttl_ms)
  local token, now_ms = mint(counter)
  local ends_ms = now_ms + ttl_ms
  redis.call('SET', resource, value, 'PXAT', ends_ms)
  redis.call('SET', '\1h' .. resource, token .. ':' .. rest, 'PXAT', ends_ms)
  return token
end
