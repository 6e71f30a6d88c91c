-- Frequent scripts give numbers to commands as text: Redis formats a number argument with 17
-- digits, which costs as much as a command does.

-- The time in milliseconds, as text, at which a TTL ends that starts now.
local function end_of(time, ttl_ms)
  local ms = math.floor(time[2] / 1000) + ttl_ms
  return string.format('%d%03d', time[1] + math.floor(ms / 1000), ms % 1000)
end
