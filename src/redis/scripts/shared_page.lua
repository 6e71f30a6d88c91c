-- Returns a page of the live grants in the order of their tokens, each as its record and in how many
-- milliseconds it ends, and how far it has read if there may be more. It begins behind the grant
-- with the public ID `after_id`, or if that has ended, with the millisecond of its token.
function Shared:page(after_ms, after_id, limit)
  local after = redis.call('HGET', self.records, 'g' .. after_id)
  after = after and redis.call('ZSCORE', self.tokens, after)
  local from = after and '(' .. after or after_ms ~= '' and after_ms .. '000' or '-inf'
  local size, views, last = math.min(limit + 1, CHUNK), {}, nil
  -- Grants that have expired may be in between.
  for _ = 1, CHUNK / BATCH do
    local found =
      redis.call('ZRANGEBYSCORE', self.tokens, from, '+inf', 'WITHSCORES', 'LIMIT', 0, size)
    if #found == 0 then return views end
    local lock_ids, fields = {}, {}
    for i = 1, #found, 2 do
      table.insert(lock_ids, found[i])
      table.insert(fields, 'l' .. found[i])
    end
    local ends = redis.call('ZMSCORE', self.ends, unpack(lock_ids))
    local records = redis.call('HMGET', self.records, unpack(fields))
    for i = 1, #lock_ids do
      local grant = Shared.read_record(records[i])
      if grant and self:is_live(ends[i]) then
        if #views == limit then return views, last end
        local left_ms = ends[i] - self.now
        table.insert(views, { records[i], left_ms })
      end
      last = { found[2 * i], grant and grant.id or '' }
    end
    if #lock_ids < size then return views end
    from = '(' .. found[#found]
  end
  return views, last
end
