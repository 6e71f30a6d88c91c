local how = { monitored = ARGV[4] == '1', holders_max = tonumber(ARGV[5]) }
local value = found[1] or redis.call('GET', resource)
local shared = shared_by(resource, value)
if not value or not (force or shared or value == lock_id) then
  return refuse(resource, { 'not', value and 1 or 0 })
end
local ended = shared and not force and shared:grant(lock_id)
if shared and not force and not ended then return shared:refuse_owner() end
-- This is a later sending of the same release, which must not end a newer grant.
if aim ~= '' then
  local grant = ended or live_grant(resource)
  local later
  if shared and force then
    local token = string.match(aim, '^' .. redis.sha1hex(value) .. ':(%d+)$')
    later = not token
    -- Others have got a shared grant since the first sending, which is not ended with these.
    if token and mark(nil, value, shared) ~= aim then
      local more = shared:forget_older(token)
      return { more and 'more' or 'ok', shared:settle(how) }
    end
  elseif force then
    -- The hand-over at the first sending may have been confirmed since.
    later = mark(grant, value) ~= aim and not (grant and grant.attempt == aim)
  else
    -- A lock ID that leasehold chose is never granted again; one that the caller chose may
    -- be. A lock without a record is identified by its value only.
    later = grant and grant.given and tonumber(grant.token) > tonumber(aim)
    -- With a dot the aim is the token of the only grant that is meant, from the first
    -- sending on.
    later = later or not grant and string.sub(aim, -1) == '.'
  end
  if later then return refuse(resource, { 'not', 1 }) end
end
if ended then
  shared:forget({ lock_id })
  return { 'ok', shared:settle(how) }
end
if shared then shared:finish() end
local handed = handover(resource, how)
-- Another client may set a lock ID that the caller chose, and must not find this grant's
-- record then. A lock ID that leasehold chose is never set again, so the command is saved.
if handed == 1 and string.match(found[2] or '', '^%d+:%d+:%x+!?%x*:%a:1:') then
  redis.call('DEL', '\1h' .. resource)
end
return { 'ok', handed }
