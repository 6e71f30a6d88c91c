-- Returns the token of the next grant, and the server's time. The token is greater than every
-- earlier one of this counter, and at least the server's time in microseconds, so tokens rise
-- even if the counter is lost. A caller that has read the time hands it in, and as `text` the
-- same in microseconds. If Redis is out of memory, it refuses the first write, before
-- anything was changed.
local function mint(counter, time, text)
  time = time or redis.call('TIME')
  text = text or time[1] .. string.rep('0', 6 - #time[2]) .. time[2]
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
