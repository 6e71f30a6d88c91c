-- Identifies what holds the resource now, unlike anything that held it before or will later:
-- the token of a grant, the attempt of a hand-over, the hash of the value of a lock without a
-- record, or the hash of the mark of shared grants and the newest token of them.
local function mark(grant, value, shared)
  if grant then return grant.token or grant.attempt end
  local hash = redis.sha1hex(value)
  return shared and hash .. ':' .. (redis.call('HGET', shared.records, 't') or '0') or hash
end

-- What the caller asks for, as each script that acquires has it in its first arguments.
local function read_asked()
  return {
    lock_id = ARGV[1],
    ttl_ms = ARGV[2],
    rest = ARGV[3],
    attempt = ARGV[4],
    request = ARGV[5],
    given = ARGV[6],
    mode = ARGV[7],
  }
end

-- In which field a repeated request differs from its live grant.
local function difference(asked, grant)
  if asked.given == '1' and asked.lock_id ~= grant.lock_id then return 'lock_id' end
  if asked.mode ~= grant.mode then return 'mode' end
  return nil
end

-- Removes the attempt from what is recorded, so that no clean-up ends the grant.
local function without_attempt(rest)
  return (string.gsub(rest, '^(%d+:)%x*', '%1', 1))
end

-- Turns the hand-over of a place into a shared grant. If Redis is out of memory, it refuses the
-- first write of a script if that may add data, but no write after another one.
local function confirm_reader(shared, counter, place, rest, ttl_ms)
  redis.call('ZREM', shared.called, place)
  local grant = read_rest(rest)
  grant.token = mint(counter)
  add_reader(shared, grant.token, grant, ttl_ms)
  return grant
end

-- The hand-over to a place with this request ID. There are few hand-overs at the same time.
local function called_by(shared, request)
  local called =
    redis.call('ZRANGEBYSCORE', shared.called, shared.now, '+inf', 'LIMIT', 0, SHARED_CHUNK)
  for _, place in ipairs(called) do
    local grant = read_rest(string.sub(place, 33))
    if grant and grant.request == request then return place, grant end
  end
  return nil
end

-- `find_own` among the shared grants.
local function find_own_shared(shared, counter, asked)
  local same, handed
  if asked.mode == 's' then
    same = reader(shared, asked.lock_id)
    if same and same.attempt == asked.attempt then
      extend_reader(shared, same.lock_id, asked.ttl_ms)
      return { 'made', same.token, same.lock_id }
    end
    handed = asked.place and redis.call('ZSCORE', shared.called, asked.place)
  end
  if asked.request ~= '' then
    local lock_id = redis.call('HGET', shared.records, 'q' .. asked.request)
    local grant = lock_id and reader(shared, lock_id)
    if grant then
      if handed then redis.call('ZREM', shared.called, asked.place) end
      local field = difference(asked, grant)
      if field then return refuse(shared.resource, { 'differs', field }) end
      extend_reader(shared, lock_id, asked.ttl_ms)
      local claimed = grant.token .. ':' .. without_attempt(grant.rest)
      redis.call('HSET', shared.records, 'l' .. lock_id, claimed)
      return { 'found', grant.token, lock_id }
    end
  end
  if handed then
    if same or not is_live(shared, handed) then
      redis.call('ZREM', shared.called, asked.place)
      return same and { 'taken' } or nil
    end
    local grant = confirm_reader(shared, counter, asked.place, asked.rest, asked.ttl_ms)
    return { 'made', grant.token, grant.lock_id }
  end
  if asked.request ~= '' then
    local place, grant = called_by(shared, asked.request)
    if place and not reader(shared, grant.lock_id) then
      local field = difference(asked, grant)
      if field then return refuse(shared.resource, { 'differs', field }) end
      local claimed = without_attempt(grant.rest)
      grant = confirm_reader(shared, counter, place, claimed, asked.ttl_ms)
      return { 'found', grant.token, grant.lock_id }
    end
  end
  return nil
end

-- Finds the own grant of a repeated sending or a repeated request. Also returns what holds the
-- resource: the key's value, the exclusive grant, the shared grants.
local function find_own(resource, counter, asked)
  local grant, value = live_grant(resource)
  if not grant then
    local shared = shared_by(resource, value)
    return shared and find_own_shared(shared, counter, asked), value, nil, shared
  end
  if grant.attempt == asked.attempt then
    if grant.process then
      grant.token = confirm(resource, counter, grant, grant.rest, asked.ttl_ms)
    else
      extend(resource, asked.ttl_ms)
    end
    return { 'made', grant.token, grant.lock_id }, value, grant
  end
  if asked.request ~= '' and grant.request == asked.request then
    local field = difference(asked, grant)
    if field then return refuse(resource, { 'differs', field }), value, grant end
    local claimed = without_attempt(grant.rest)
    if grant.process then
      grant.token = confirm(resource, counter, grant, claimed, asked.ttl_ms)
    else
      redis.call('SET', '\1h' .. resource, grant.token .. ':' .. claimed)
      extend(resource, asked.ttl_ms)
    end
    return { 'found', grant.token, grant.lock_id }, value, grant
  end
  return nil, value, grant
end
