local resource = KEYS[1]
local force, lock_id, aim, monitored = ARGV[1] == '1', ARGV[2], ARGV[3], ARGV[4] == '1'
local found = redis.call('MGET', resource, '\1h' .. resource)
-- MGET reads a key of another type as none; GET is refused.
local value = found[1] or redis.call('GET', resource)
if not value or not (force or value == lock_id) then
  return refuse(resource, { 'not', value and 1 or 0 })
end
-- A later try of the same release: what was granted since is not meant.
if aim ~= '' then
  local grant = live_grant(resource)
  local later
  if force then
    -- What was handed over then may have been confirmed since.
    later = mark(grant, value) ~= aim and not (grant and grant.attempt == aim)
  else
    -- A lock ID that was made for its grant is never granted again; one that the
    -- caller gave may be. A lock without a record is told by its value alone.
    later = grant and grant.given and tonumber(grant.token) > tonumber(aim)
  end
  if later then return refuse(resource, { 'not', 1 }) end
end
local handed = handover(resource, monitored)
-- A lock ID that the caller gave may be set again by other means, and must not find
-- this grant's record then. One that was made for its grant is never set again, and a
-- hand-over costs no command for it.
if handed == 1 and string.match(found[2] or '', '^%d+:%d+:%x*:%a:1:') then
  redis.call('DEL', '\1h' .. resource)
end
return { 'ok', handed }
