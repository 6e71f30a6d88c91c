-- Makes the grant of a hand-over to the attempt, or starts the TTL of its grant again.
local function keep_own(resource, counter, grant, ttl_ms)
  if grant.process then
    grant.token = confirm(resource, counter, grant.lock_id, grant.rest, ttl_ms)
  else
    extend(resource, ttl_ms)
  end
  return { 'made', grant.token, grant.lock_id }
end
