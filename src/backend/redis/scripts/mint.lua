-- The token of the next grant: greater than every earlier one of this counter,
-- and no less than the server's time, so that losing the counter loses nothing.
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
  return text
end
