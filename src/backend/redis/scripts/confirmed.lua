-- Turns a hand-over into a grant. If Redis is out of memory, it refuses the first write of a
-- script if that may add data, but no write after another one.
local function confirm(resource, counter, grant, rest, ttl_ms)
  local made, token = pcall(make_grant, resource, counter, grant.lock_id, rest, ttl_ms)
  if made then return token end
  redis.call('PEXPIRE', resource, PROVISIONAL_MS + LAPSED_MS)
  return make_grant(resource, counter, grant.lock_id, rest, ttl_ms)
end

-- Makes the grant of a hand-over to the attempt, or starts the TTL of its grant again.
local function keep_own(resource, counter, grant, ttl_ms)
  if grant.process then
    grant.token = confirm(resource, counter, grant, grant.rest, ttl_ms)
  else
    extend(resource, ttl_ms)
  end
  return { 'made', grant.token, grant.lock_id }
end
