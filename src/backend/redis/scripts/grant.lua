-- Reads the grant's record, if it belongs to the present value of the resource:
-- that may have been deleted or set by somebody who knows nothing of records.
local function live_grant(resource)
  local found = redis.call('MGET', resource, '\1h' .. resource)
  local value, record = found[1], found[2]
  if not value or not record then return nil, value end
  local token, rest = string.match(record, '^(%d+):(.*)$')
  if not token then return nil, value end
  local attempt, locks, requests, at =
    string.match(rest, '^%d+:(%x*):%a:%d:(%d+):(%d+):()')
  if not attempt or string.sub(rest, at, at + locks - 1) ~= value then return nil, value end
  return {
    token = token,
    rest = rest,
    attempt = attempt,
    request = string.sub(rest, at + locks, at + locks + requests - 1),
    holder = string.sub(rest, at + locks + requests),
  }, value
end

-- Tells every process that waits to look again sooner than it planned, because
-- this grant ends before the longest time that they let pass between two looks.
local function tell_short(resource, ttl_ms)
  if tonumber(ttl_ms) < LOOK_MS_MAX and redis.call('EXISTS', '\1q' .. resource) == 1 then
    redis.pcall('PUBLISH', '\1n', ttl_ms .. ':' .. resource)
  end
end

-- What a repeated sending, or a repeated request, finds that is its own.
local function find_own(resource, lock_id, ttl_ms, attempt, request, given)
  local grant, value = live_grant(resource)
  if not grant then return nil, value end
  local record = '\1h' .. resource
  if grant.attempt == attempt then
    redis.call('PEXPIRE', resource, ttl_ms)
    redis.call('PEXPIRE', record, ttl_ms)
    tell_short(resource, ttl_ms)
    return { 'made', grant.token, value }, value, grant
  end
  if request ~= '' and grant.request == request then
    if given == '1' and lock_id ~= value then return { 'differs', 'lock_id' }, value, grant end
    -- Claimed: from now on it is nobody's attempt, so that no clean-up ends it.
    local claimed = string.gsub(grant.rest, '^(%d+:)%x*', '%1', 1)
    redis.call('SET', record, grant.token .. ':' .. claimed, 'PX', ttl_ms)
    redis.call('PEXPIRE', resource, ttl_ms)
    tell_short(resource, ttl_ms)
    return { 'found', grant.token, value }, value, grant
  end
  return nil, value, grant
end
