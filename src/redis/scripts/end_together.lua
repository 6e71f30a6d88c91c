-- In how many milliseconds both keys expire, if that is the same millisecond; otherwise nil, also
-- for keys without an expiry (-1). The clock may advance between the two readings, even by much if
-- the server was suspended; then both are read again.
local function end_together(key, other)
  while true do
    local left, others = redis.call('PTTL', key), redis.call('PTTL', other)
    if left == others then return left >= 0 and left or nil end
    if left < others then return nil end
    if redis.call('PTTL', key) == left then return nil end
  end
end
