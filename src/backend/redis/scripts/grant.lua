-- Answers that nothing was done. A master that has become a replica goes on
-- answering reads, from data that are no longer the truth. It refuses writes: so
-- it is asked for one first, which changes nothing, for this key never exists.
local function refuse(resource, reply)
  redis.call('DEL', '\1-' .. resource)
  return reply
end

-- Whether both keys end in the same millisecond. The clock may tick between two
-- readings: then both are read again. A key without an expiry (-1) never counts.
local function end_together(key, other)
  while true do
    local left, others = redis.call('PTTL', key), redis.call('PTTL', other)
    if left == others then return left >= 0 end
    if left - others ~= 1 then return false end
    if redis.call('PTTL', key) == left then return false end
  end
end

-- Reads the grant's record, if it belongs to this very setting of the resource's
-- key: that may have been deleted, or set by somebody who knows nothing of
-- records, perhaps to the same value (an owner's name). A record belongs to
-- * a value that names the attempt: handed over, and not confirmed yet;
-- * its lock ID as value, if both keys end in the same millisecond.
-- So a record never outlives its grant, and what another has set, or has given
-- another expiry, has no record.
local function live_grant(resource)
  local found = redis.call('MGET', resource, '\1h' .. resource)
  local value, record = found[1], found[2]
  if not value or not record then return nil, value end
  local token, rest = string.match(record, '^(%d+):(.*)$')
  if not token then return nil, value end
  local attempt, given, locks, requests, at =
    string.match(rest, '^%d+:(%x*):%a:(%d):(%d+):(%d+):()')
  if not attempt then return nil, value end
  local lock_id = string.sub(rest, at, at + locks - 1)
  local provisional = attempt ~= '' and value == '\1' .. attempt
  if not provisional and not (value == lock_id and end_together(resource, '\1h' .. resource)) then
    return nil, value
  end
  return {
    token = token,
    rest = rest,
    attempt = attempt,
    given = given == '1',
    lock_id = lock_id,
    provisional = provisional,
    request = string.sub(rest, at + locks, at + locks + requests - 1),
    holder = string.sub(rest, at + locks + requests),
  }, value
end

-- Tells what holds the resource now from whatever held it before or will later:
-- the grant's token or, of a lock without one, a hash of its value.
local function mark(grant, value)
  return grant and grant.token or redis.sha1hex(value)
end

-- Starts the TTL of a live grant again, and makes it whole if it was provisional.
-- Without `grant` the key's value is known to be the lock ID.
local function extend(resource, grant, ttl_ms)
  local time = redis.call('TIME')
  local ends_ms = time[1] * 1000 + math.floor(time[2] / 1000) + ttl_ms
  -- First the write that is not refused for want of memory.
  redis.call('PEXPIREAT', '\1h' .. resource, ends_ms)
  if grant and grant.provisional then
    redis.call('SET', resource, grant.lock_id, 'PXAT', ends_ms)
  else
    redis.call('PEXPIREAT', resource, ends_ms)
  end
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
  if grant.attempt == attempt then
    extend(resource, grant, ttl_ms)
    tell_short(resource, ttl_ms)
    return { 'made', grant.token, grant.lock_id }, value, grant
  end
  if request ~= '' and grant.request == request then
    if given == '1' and lock_id ~= grant.lock_id then
      return refuse(resource, { 'differs', 'lock_id' }), value, grant
    end
    -- Claimed: from now on it is nobody's attempt, so that no clean-up ends it.
    local claimed = string.gsub(grant.rest, '^(%d+:)%x*', '%1', 1)
    redis.call('SET', '\1h' .. resource, grant.token .. ':' .. claimed)
    extend(resource, grant, ttl_ms)
    tell_short(resource, ttl_ms)
    return { 'found', grant.token, grant.lock_id }, value, grant
  end
  return nil, value, grant
end
