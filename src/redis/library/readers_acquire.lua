-- How the grants of a resource that is shared are acquired, and found again.

-- The hand-over to a place with this request ID. There are few hand-overs at the same time.
function readers:called_for(request)
  local called = redis.call(
    'ZRANGEBYSCORE', self.keys[CALLED], self.now_text, '+inf', 'LIMIT', '0', BATCH)
  for _, place in ipairs(called) do
    local waiter = format.place(place)
    if waiter and waiter.request == request then return place, waiter end
  end
  return nil
end

-- Turns the hand-over of a place into the grant of an attempt, and returns its token.
function readers:confirm(place, ttl_ms, last)
  redis.call('ZREM', self.keys[CALLED], place)
  local waiter = format.place(place)
  return self:add(waiter.lock_id, ttl_ms, waiter.id, last, waiter.terms)
end

-- Finds the own grant of a repeated sending, a repeated request or a hand-over. The attempt then
-- waits no more, and those behind it may have their turn. If there is none, the second result is the shared grant of
-- another attempt with the same lock ID.
function readers:find_own(asked, own_place, how)
  local own, same = self:look_for(asked, own_place)
  if own then
    if own_place then redis.call('ZREM', self.keys[QUEUE], own_place) end
    own[4] = self:settle(how)
  end
  return own, same
end

function readers:look_for(asked, own_place)
  local keys = self.keys
  local same, handed
  if asked.mode == 's' then
    same = self:grant(asked.lock_id)
    if same and grants.is_own(same, asked.attempt) then
      self:extend(same.lock_id, asked.ttl_ms)
      return { 'made', same.token, same.lock_id }
    end
    handed = own_place and redis.call('ZSCORE', keys[CALLED], own_place)
  end
  if asked.request ~= '' then
    local lock_id = redis.call('HGET', keys[READERS], 'q' .. asked.request)
    local grant = lock_id and self:grant(lock_id)
    if grant then
      format.must_read(grant)
      if handed then redis.call('ZREM', keys[CALLED], own_place) end
      local field = grants.difference(asked, grant)
      if field then return { 'differs', field } end
      self:extend(lock_id, asked.ttl_ms)
      if asked.attempt ~= grant.id then
        local rest = format.rest(grant.id, asked.attempt, grant.terms)
        redis.call('HSET', keys[READERS], 'l' .. lock_id, grant.token .. ':' .. rest)
      end
      return { 'found', grant.token, lock_id, 0, grant.id }
    end
  end
  if handed then
    if same or not self:is_live(handed) then
      redis.call('ZREM', keys[CALLED], own_place)
      return same and { 'taken' } or nil
    end
    local token = self:confirm(own_place, asked.ttl_ms, asked.attempt)
    return { 'made', token, asked.lock_id }
  end
  local place, waiter
  if asked.request ~= '' then place, waiter = self:called_for(asked.request) end
  if place and not self:grant(waiter.lock_id) then
    local field = grants.difference(asked, waiter)
    if field then return { 'differs', field } end
    local token = self:confirm(place, asked.ttl_ms, asked.attempt)
    return { 'found', token, waiter.lock_id, 0, waiter.id }
  end
  return nil, same
end

-- Adds the grant that is asked for. `self` is nil if nothing is held: then it is the first.
function readers.join(self, keys, asked)
  self = self or readers.begin(keys, asked.attempt)
  local token = self:add(asked.lock_id, asked.ttl_ms, asked.attempt, asked.attempt, asked.terms)
  self:move_end()
  return token
end

-- A try at a resource that others hold together.
function readers:try(asked, how, same)
  local keys = self.keys
  if asked.mode ~= 's' or same then return self:refuse(0) end
  if self:count() >= how.holders_max then return { 'many' } end
  if redis.call('EXISTS', keys[QUEUE]) == 0 then
    return { 'made', self:join(keys, asked), asked.lock_id }
  end
  -- Perhaps only dead processes wait, or those who do may have their turn.
  questions.answer(keys, how.process)
  local more = questions.check(keys, how, true) == 0
  local handed = self:admit(how)
  if redis.call('EXISTS', keys[QUEUE]) == 0 and self:count() < how.holders_max then
    return { 'made', self:join(keys, asked), asked.lock_id, handed }
  end
  local now = how.called or more or handed == MORE
  return self:refuse(now and LOOK_NOW or how.writer and LOOK_SOON or 0)
end

-- Answers that the resource is held, and by the first live grant. Behind many grants that have
-- expired it is not searched.
function readers:refuse(look)
  for _, range in ipairs({ { 0, 0 }, { 1, BATCH - 1 } }) do
    for _, lock_id in ipairs(redis.call('ZRANGE', self.keys[TOKENS], unpack(range))) do
      local grant = self:grant(lock_id)
      if grant then return { 'held', look, grant.holder, grant.id, grant.mode, grant.token } end
    end
  end
  return { 'held', look }
end
