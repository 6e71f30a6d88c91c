local resource, ttl_ms, attempt, request = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local grant = live_grant(resource)
if not grant then return { 'gone' } end
if grant.attempt == attempt then
  extend(resource, grant, ttl_ms)
  tell_short(resource, ttl_ms)
  return { 'made', grant.token, grant.lock_id }
end
-- A replay was quicker and claimed it: the same request, so the same grant.
if request ~= '' and grant.request == request then
  extend(resource, grant, ttl_ms)
  tell_short(resource, ttl_ms)
  return { 'found', grant.token, grant.lock_id }
end
return { 'gone' }
