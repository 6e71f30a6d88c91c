-- Makes a grant. Its key and its record expire in the same millisecond. By that `live_grant`
-- distinguishes this key from one that another client has set since.
local function make_grant(resource, counter, value, rest, ttl_ms)
  local token, time = mint(counter)
  local ends_ms = end_of(time, ttl_ms)
  redis.call('SET', resource, value, 'PXAT', ends_ms)
  redis.call('SET', '\1h' .. resource, token .. ':' .. rest, 'PXAT', ends_ms)
  return token
end
