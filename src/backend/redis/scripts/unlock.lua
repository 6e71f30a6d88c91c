local resource = KEYS[1]
local force, lock_id, bound = ARGV[1] == '1', ARGV[2], ARGV[3]
local value = redis.call('GET', resource)
if not value or not (force or value == lock_id) then return { 'not', value and 1 or 0 } end
-- A later try of the same release: what was granted since is not meant.
if bound ~= '' then
  local grant = live_grant(resource)
  -- What is handed over, but not confirmed, has no token yet: nobody holds it.
  if not grant or not grant.token or tonumber(grant.token) > tonumber(bound) then
    return { 'not', 1 }
  end
end
return { 'ok', handover(resource) }
