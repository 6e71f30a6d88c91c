-- Turns a hand-over into a grant. If Redis is out of memory, it refuses the first write of a
-- script if that may add data, but no write after another one.
local function confirm(resource, counter, lock_id, rest, ttl_ms)
  local made, token = pcall(make_grant, resource, counter, lock_id, rest, ttl_ms)
  if made then return token end
  redis.call('PEXPIRE', resource, CALLED_MS)
  return make_grant(resource, counter, lock_id, rest, ttl_ms)
end
