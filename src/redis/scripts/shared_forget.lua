-- Removes grants. A request ID may belong to another grant by now.
function Shared:forget(lock_ids)
  local fields, requests, asked_by = {}, {}, {}
  for i, lock_id in ipairs(lock_ids) do fields[i] = 'l' .. lock_id end
  local records = redis.call('HMGET', self.records, unpack(fields))
  for i, lock_id in ipairs(lock_ids) do
    local grant = Shared.read_record(records[i])
    if grant then table.insert(fields, 'g' .. grant.id) end
    if grant and grant.request ~= '' then
      table.insert(requests, 'q' .. grant.request)
      table.insert(asked_by, lock_id)
    end
  end
  if #requests > 0 then
    local found = redis.call('HMGET', self.records, unpack(requests))
    for i, lock_id in ipairs(asked_by) do
      if found[i] == lock_id then table.insert(fields, requests[i]) end
    end
  end
  redis.call('HDEL', self.records, unpack(fields))
  redis.call('ZREM', self.ends, unpack(lock_ids))
  redis.call('ZREM', self.tokens, unpack(lock_ids))
end

-- Ends some of the grants whose tokens are not greater than this one. Returns whether there may
-- be more.
function Shared:forget_older(token)
  local older = redis.call('ZRANGEBYSCORE', self.tokens, '-inf', token, 'LIMIT', 0, BATCH)
  if #older > 0 then self:forget(older) end
  return #older == BATCH
end

-- Ends the grant of an attempt, or the hand-over to it. A hand-over to an attempt that does not
-- wait is known by the attempt alone. Returns whether there was one.
function Shared:withdraw(attempt, place, only_called)
  if not only_called then
    local grant = self:grant(read_rest(string.sub(place, 33)).lock_id)
    if not (grant and grant.attempt == attempt) then
      return redis.call('ZREM', self.called, place) == 1
    end
    self:forget({ grant.lock_id })
    return true
  end
  for _, called in ipairs(redis.call('ZRANGE', self.called, 0, -1)) do
    if string.match(called, '^%d+:(%x+):', 33) == attempt then
      return redis.call('ZREM', self.called, called) == 1
    end
  end
  return false
end
