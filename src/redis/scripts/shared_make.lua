-- Removes some of the grants that have expired. Each new grant removes more than one, so they
-- cannot pile up.
function Shared:drop_expired()
  local before = '(' .. self.now_text
  local expired = redis.call('ZRANGEBYSCORE', self.ends, '-inf', before, 'LIMIT', '0', BATCH)
  if #expired > 0 then self:forget(expired) end
end

function Shared:add(token, grant, ttl_ms)
  -- An expired grant may have had the same lock ID and another request ID.
  if grant.given then self:forget({ grant.lock_id }) end
  local record, id = token .. ':' .. grant.rest, 'g' .. grant.id
  redis.call('HSET', self.records, 't', token, 'l' .. grant.lock_id, record, id, grant.lock_id)
  if grant.request ~= '' then
    redis.call('HSET', self.records, 'q' .. grant.request, grant.lock_id)
  end
  redis.call('ZADD', self.ends, self:after(ttl_ms), grant.lock_id)
  redis.call('ZADD', self.tokens, token, grant.lock_id)
  self.added = true
end

-- Makes the grant that is asked for: the first of the resource, or beside those in `shared`.
-- Drawing the token needs memory, so it comes before any other write.
function Shared.make(resource, counter, asked, shared)
  local token = mint(counter)
  if shared then
    shared:drop_expired()
  else
    shared = Shared.begin(resource, asked.attempt, token)
  end
  shared:add(token, read_rest(asked.rest), asked.ttl_ms)
  shared:move_end()
  return token
end

-- Turns the hand-over of a place into a grant. If Redis is out of memory, it refuses the first
-- write of a script if that may add data, but no write after another one.
function Shared:confirm(counter, place, rest, ttl_ms)
  redis.call('ZREM', self.called, place)
  local grant = read_rest(rest)
  grant.token = mint(counter)
  self:drop_expired()
  self:add(grant.token, grant, ttl_ms)
  return grant
end

-- The hand-over to a place with this request ID. There are few hand-overs at the same time.
function Shared:called_for(request)
  local called =
    redis.call('ZRANGEBYSCORE', self.called, self.now_text, '+inf', 'LIMIT', '0', BATCH)
  for _, place in ipairs(called) do
    local grant = read_rest(string.sub(place, 33))
    if grant and grant.request == request then return place, grant end
  end
  return nil
end

-- Finds the own grant of a repeated sending, a repeated request or a hand-over. If there is none,
-- the second result is the shared grant of another attempt with the same lock ID.
function Shared:find_own(counter, asked, own_place)
  local same, handed
  if asked.mode == 's' then
    same = self:grant(asked.lock_id)
    if same and same.attempt == asked.attempt then
      self:extend(same.lock_id, asked.ttl_ms)
      return { 'made', same.token, same.lock_id }
    end
    handed = own_place and redis.call('ZSCORE', self.called, own_place)
  end
  if asked.request ~= '' then
    local lock_id = redis.call('HGET', self.records, 'q' .. asked.request)
    local grant = lock_id and self:grant(lock_id)
    if grant then
      if handed then redis.call('ZREM', self.called, own_place) end
      local field, claimed = claim(grant)
      if field then return refuse(self.resource, { 'differs', field }) end
      self:extend(lock_id, asked.ttl_ms)
      redis.call('HSET', self.records, 'l' .. lock_id, grant.token .. ':' .. claimed)
      return { 'found', grant.token, lock_id, 0, grant.id }
    end
  end
  if handed then
    if same or not self:is_live(handed) then
      redis.call('ZREM', self.called, own_place)
      return same and { 'taken' } or nil
    end
    local grant = self:confirm(counter, own_place, asked.rest, asked.ttl_ms)
    return { 'made', grant.token, grant.lock_id }
  end
  local place, called
  if asked.request ~= '' then place, called = self:called_for(asked.request) end
  if place and not self:grant(called.lock_id) then
    local field, claimed = claim(called)
    if field then return refuse(self.resource, { 'differs', field }) end
    local grant = self:confirm(counter, place, claimed, asked.ttl_ms)
    return { 'found', grant.token, grant.lock_id, 0, grant.id }
  end
  return nil, same
end

-- Answers that the resource is held, and by the first live grant. Behind many grants that have
-- expired it is not searched.
function Shared:refuse_held(look)
  local held = { 'held', look }
  for _, range in ipairs({ { 0, 0 }, { 1, BATCH - 1 } }) do
    for _, lock_id in ipairs(redis.call('ZRANGE', self.tokens, unpack(range))) do
      local grant = self:grant(lock_id)
      if grant then
        held = { 'held', look, grant.holder, grant.id, grant.mode, grant.token }
        return refuse(self.resource, held)
      end
    end
  end
  return refuse(self.resource, held)
end
