-- The token of the next grant, and the server's time in milliseconds. The token
-- is greater than every earlier one of this counter, and no less than the
-- server's time in microseconds, so that losing the counter loses nothing.
-- Its first write may be refused for want of memory, before anything changed.
local function mint(counter)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local text = string.format('%.0f', now)
  local last = tonumber(redis.call('GETSET', counter, text) or 0) or 0
  -- What is no token of ours, above all of 2^53 or more, counts for nothing.
  if last >= now and last < 9007199254740991 then
    text = string.format('%.0f', last + 1)
    redis.call('SET', counter, text)
  end
  return text, math.floor(now / 1000)
end

-- Makes a grant. Its key and its record end in the same millisecond, which is
-- how `live_grant` tells this key from one that somebody has set since.
local function make_grant(resource, counter, value, rest, ttl_ms)
  local token, now_ms = mint(counter)
  local ends_ms = now_ms + ttl_ms
  redis.call('SET', resource, value, 'PXAT', ends_ms)
  redis.call('SET', '\1h' .. resource, token .. ':' .. rest, 'PXAT', ends_ms)
  return token
end
