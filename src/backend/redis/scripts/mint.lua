-- Returns the token of the next grant, and the server's time, which a caller that has read it
-- already hands in. The token is greater than every
-- earlier one of this counter, and at least the server's time in microseconds, so tokens rise
-- even if the counter is lost. If Redis is out of memory, it refuses the first write, before
-- anything was changed.
local function mint(counter, time)
  time = time or redis.call('TIME')
  local text = time[1] .. string.rep('0', 6 - #time[2]) .. time[2]
  local last = redis.call('GETSET', counter, text)
  -- Two whole numbers of the same length are in the order of their texts.
  if last and not (#last == #text and last < text) then
    last = tonumber(last) or 0
    -- Ignore a value that is not a valid token, such as one of 2^53 or more.
    if last >= tonumber(text) and last < 9007199254740991 then
      text = string.format('%.0f', last + 1)
      redis.call('SET', counter, text)
    end
  end
  return text, time
end

-- Makes a grant. Its key and its record expire in the same millisecond. By that `live_grant`
-- distinguishes this key from one that another client has set since.
local function make_grant(resource, counter, value, rest, ttl_ms)
  local token, time = mint(counter)
  local ends_ms = end_of(time, ttl_ms)
  redis.call('SET', resource, value, 'PXAT', ends_ms)
  redis.call('SET', '\1h' .. resource, token .. ':' .. rest, 'PXAT', ends_ms)
  return token
end
