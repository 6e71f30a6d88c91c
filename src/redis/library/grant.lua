-- Exclusive grants.
--
-- The resource's key has the lock ID as its value, as with the built-in lock.redis. The record
-- beside it expires in the same millisecond. In a Cluster it may expire up to APART_MS earlier or
-- later once their slot has been moved, until the next renewal.
local grants = {}

-- Frequent functions give numbers to commands as text: Redis formats a number argument with 17
-- digits, which costs as much as a command does.

-- The server's time in microseconds, as text.
local function clock()
  local time = redis.call('TIME')
  local us = time[2]
  if #us < 6 then us = string.rep('0', 6 - #us) .. us end
  return time[1] .. us
end

-- The time in milliseconds, as text, at which a TTL ends that starts at this time of `clock`.
local function end_of(now_us, ttl_ms)
  local ends_ms = now_us / 1000 + ttl_ms
  -- It is too long for a whole number of 32 bits. %d leaves a fraction out.
  return string.format('%d%03d', ends_ms / 1000, ends_ms % 1000)
end

-- Returns the token that follows the last one of this counter, which was replaced by the time.
local function token_after(last, counter, now_us)
  -- Two whole numbers of the same length are in the order of their texts.
  if last and not (#last == #now_us and last < now_us) then
    last = tonumber(last) or 0
    -- Ignore a value that is not a valid token, such as one of 2^53 or more.
    if last >= tonumber(now_us) and last < 9007199254740991 then
      local token = string.format('%.0f', last + 1)
      redis.call('SET', counter, token)
      return token
    end
  end
  return now_us
end

-- Returns the token of the next grant. It is greater than every earlier one of this counter, and
-- at least the server's time in microseconds, so tokens rise even if the counter is lost.
local function draw_token(counter, now_us)
  return token_after(redis.call('GETSET', counter, now_us), counter, now_us)
end

-- In how many milliseconds both keys expire, if that is the same millisecond, or at most APART_MS
-- apart; otherwise nil, also for keys without an expiry (-1). The clock may advance between the two
-- readings, even by much if the server was suspended; then both are read again.
local function end_together(key, other)
  while true do
    local left, others = redis.call('PTTL', key), redis.call('PTTL', other)
    if left < 0 or others < 0 then return nil end
    if left - others <= APART_MS and others - left <= APART_MS then return left end
    if left < others or redis.call('PTTL', key) == left then return nil end
  end
end

-- Returns the exclusive grant or the hand-over of a resource, if there is one, and the value of
-- its key. A caller that has read the two keys gives what it `found`.
--
-- The key may have been deleted, or set by a client that does not know records. So a record
-- belongs to the key only if the key's value is its lock ID. A lock ID that a caller chose (an
-- owner's name) may have been set by both. Then both must expire together, too.
function grants.holder(keys, found)
  found = found or redis.call('MGET', keys[RESOURCE], keys[RECORD])
  local value = found[1]
  -- GET fails for a key of another type, which MGET treats as absent.
  if not value then return nil, redis.call('GET', keys[RESOURCE]) end
  if string.byte(value) == 1 then return format.place(string.sub(value, 2)), value end
  local grant = format.grant(found[2])
  if grant and (grant.is_newer or grant.lock_id == value) then
    local is_sure = grant.is_given == false or end_together(keys[RESOURCE], keys[RECORD])
    return is_sure and grant or nil, value
  end
  return nil, value
end

-- Makes a grant with this rest of a record, and returns its token. Drawing that fails if the counter
-- has a foreign type, so it comes first.
function grants.make(keys, lock_id, ttl_ms, rest)
  local now_us = clock()
  local ends_ms = end_of(now_us, ttl_ms)
  local token = draw_token(keys[COUNTER], now_us)
  redis.call('SET', keys[RESOURCE], lock_id, 'PXAT', ends_ms)
  redis.call('SET', keys[RECORD], token .. ':' .. rest, 'PXAT', ends_ms)
  return token
end

-- Starts the TTL of a live grant again.
function grants.extend(keys, ttl_ms)
  local ends_ms = end_of(clock(), ttl_ms)
  redis.call('PEXPIREAT', keys[RESOURCE], ends_ms)
  redis.call('PEXPIREAT', keys[RECORD], ends_ms)
end

-- In which field a repeated request differs from its grant.
function grants.difference(asked, grant)
  if asked.is_given and asked.lock_id ~= grant.lock_id then return 'lock_id' end
  if asked.mode ~= grant.mode then return 'mode' end
  return nil
end

-- Whether this attempt made the grant, and nobody has claimed it.
function grants.is_own(grant, attempt)
  return grant.id == attempt and grant.last == attempt
end

-- Finds the grant or the hand-over of a repeated sending or a repeated request, and starts its TTL
-- again.
function grants.find_own(keys, asked, holder)
  if not holder then return nil end
  local made = grants.is_own(holder, asked.attempt)
  if not made then
    if asked.request == '' then return nil end
    format.must_read(holder)
    if asked.request ~= holder.request then return nil end
    local field = grants.difference(asked, holder)
    if field then return { 'differs', field } end
  end
  local lock_id, token = holder.lock_id, holder.token
  local rest = format.rest(holder.id, asked.attempt, holder.terms)
  if holder.process then
    token = grants.make(keys, lock_id, asked.ttl_ms, rest)
  else
    -- If the maker repeats its request after a claim, the grant stays claimed.
    if not made and asked.attempt ~= holder.id then
      redis.call('SET', keys[RECORD], token .. ':' .. rest)
    end
    grants.extend(keys, asked.ttl_ms)
  end
  if made then return { 'made', token, lock_id } end
  return { 'found', token, lock_id, 0, holder.id }
end
