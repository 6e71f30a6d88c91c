local resource = KEYS[1]
local force, lock_id, aim = ARGV[1] == '1', ARGV[2], ARGV[3]
local how = { monitored = ARGV[4] == '1', holders_max = tonumber(ARGV[5]) }
local found = redis.call('MGET', resource, '\1h' .. resource)
-- MGET treats a key of another type as absent; GET fails.
local value = found[1] or redis.call('GET', resource)
local shared = shared_by(resource, value)
if shared and not force then
  local grant = reader(shared, lock_id)
  -- See below for what a later sending of the same release must not end.
  local later = aim ~= '' and grant and grant.given and tonumber(grant.token) > tonumber(aim)
  if not grant or later then
    return refuse(resource, { 'not', count_sharing(shared) > 0 and 1 or 0 })
  end
  forget(shared, { lock_id })
  return { 'ok', settle(shared, how) }
end
if not value or not (force or value == lock_id) then
  return refuse(resource, { 'not', value and 1 or 0 })
end
-- This is a later sending of the same release, which must not end a newer grant.
if aim ~= '' then
  local grant = live_grant(resource)
  local later
  if shared then
    local token = string.match(aim, '^' .. redis.sha1hex(value) .. ':(%d+)$')
    later = not token
    -- Others have got a shared grant since the first sending, which is not ended with these.
    if token and mark(nil, value, shared) ~= aim then
      local older =
        redis.call('ZRANGEBYSCORE', shared.tokens, '-inf', token, 'LIMIT', 0, SHARED_CHUNK)
      if #older > 0 then forget(shared, older) end
      local handed = settle(shared, how)
      return { #older == SHARED_CHUNK and 'more' or 'ok', handed }
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
if shared then end_sharing(shared) end
local handed = handover(resource, how)
-- Another client may set a lock ID that the caller chose, and must not find this grant's
-- record then. A lock ID that leasehold chose is never set again, so the command is saved.
if handed == 1 and string.match(found[2] or '', '^%d+:%d+:%x*:%a:1:') then
  redis.call('DEL', '\1h' .. resource)
end
return { 'ok', handed }
