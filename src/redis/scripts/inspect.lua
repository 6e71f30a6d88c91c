-- Returns for each resource the number of its waiters, followed by
--
-- nothing, if it is free
-- the key's value, the record or false, and in how many milliseconds the key expires, if it has
-- an exclusive grant, a hand-over, or a foreign value. The record is returned only if both keys
-- expire in the same millisecond: see live.lua how many shared grants there are, and a page of them
--
-- or false, if one of its keys has a foreign type. One such key must not keep all other resources
-- from being listed.
local after_ms, after_id, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])

local names, queues = {}, {}
for i, resource in ipairs(KEYS) do
  names[2 * i - 1], names[2 * i] = resource, '\1h' .. resource
  queues[i] = '\1q' .. resource
end
local values = redis.call('MGET', unpack(names))
local has_queues = redis.call('EXISTS', unpack(queues)) > 0

local function tell(i, resource)
  local waiters = has_queues and redis.call('ZCARD', queues[i]) or 0
  local value, record = values[2 * i - 1], values[2 * i]
  local shared = shared_by(resource, value)
  if shared then
    return { waiters, shared:count_live(shared.ends), shared:page(after_ms, after_id, limit) }
  end
  local left_ms = value and record and end_together(resource, names[2 * i])
  if left_ms then return { waiters, value, record, left_ms } end
  left_ms = redis.call('PTTL', resource)
  if left_ms == -2 then return { waiters } end
  -- A value that is no string is not read.
  return { waiters, value or '', false, left_ms }
end

local told = {}
for i, resource in ipairs(KEYS) do
  local is_read, view = pcall(tell, i, resource)
  if not is_read and not string.find(tostring(view), 'WRONGTYPE', 1, true) then error(view, 0) end
  told[i] = is_read and view
end
return refuse(KEYS[1], told)
