-- The verbs of inspection. They write nothing, but are not declared as such: a master that has
-- become a replica refuses verbs that may write, and would answer others from data that may be
-- out of date.

-- A page of the live grants in the order of their tokens, each as its record and in how many
-- milliseconds it ends, and how far it has read if there may be more. It begins behind the grant
-- with the public ID `after_id`, or if that has ended, with the millisecond of its token.
function readers:page(after_ms, after_id, limit)
  local keys = self.keys
  local after = redis.call('HGET', keys[READERS], 'g' .. after_id)
  after = after and redis.call('ZSCORE', keys[TOKENS], after)
  local from = after and '(' .. after or after_ms ~= '' and after_ms .. '000' or '-inf'
  local size, views, last = math.min(limit + 1, CHUNK), {}, nil
  -- Grants that have expired may be in between.
  for _ = 1, CHUNK / BATCH do
    local found = redis.call(
      'ZRANGEBYSCORE', keys[TOKENS], from, '+inf', 'WITHSCORES', 'LIMIT', 0, size)
    if #found == 0 then return views end
    local lock_ids, fields = {}, {}
    for i = 1, #found, 2 do
      table.insert(lock_ids, found[i])
      table.insert(fields, 'l' .. found[i])
    end
    local ends = redis.call('ZMSCORE', keys[ENDS], unpack(lock_ids))
    local records = redis.call('HMGET', keys[READERS], unpack(fields))
    for i = 1, #lock_ids do
      local grant = format.grant(records[i])
      if grant and self:is_live(ends[i]) then
        if #views == limit then return views, last end
        table.insert(views, { records[i], ends[i] - self.now })
      end
      last = { found[2 * i], grant and grant.id or '' }
    end
    if #lock_ids < size then return views end
    from = '(' .. found[#found]
  end
  return views, last
end

-- The view of one resource: the number of its waiters, followed by
--
-- - nothing, if it is free
-- - the key's value, the record or false, and in how many milliseconds the key expires, if it has
--   an exclusive grant, a hand-over, or a foreign value. The record is returned only if both keys
--   expire together: see grant.lua
-- - how many shared grants there are, and a page of them
local function view(keys, value, record, after_ms, after_id, limit)
  local waiters = redis.call('ZCARD', keys[QUEUE])
  local shared = readers.of(keys, value)
  if shared then
    return { waiters, shared:count_in(keys[ENDS]), shared:page(after_ms, after_id, limit) }
  end
  local left_ms = value and record and end_together(keys[RESOURCE], keys[RECORD])
  if left_ms then return { waiters, value, record, left_ms } end
  left_ms = redis.call('PTTL', keys[RESOURCE])
  if left_ms == -2 then return { waiters } end
  -- A value that is no string is not read.
  return { waiters, value or '', false, left_ms }
end

-- Returns the view of each resource, or false if one of its keys has a foreign type: one such key
-- must not keep all other resources from being listed. The keys of the resources follow each other.
-- Arguments: where the page of shared grants begins, and its length.
local function inspect(keys, args)
  local after_ms, after_id, limit = args[1], args[2], tonumber(args[3])
  local names = {}
  for first = 0, #keys - 1, CALLED do
    table.insert(names, keys[first + RESOURCE])
    table.insert(names, keys[first + RECORD])
  end
  local values, views = redis.call('MGET', unpack(names)), {}
  for i = 1, #names / 2 do
    local own = { unpack(keys, (i - 1) * CALLED + 1, i * CALLED) }
    local is_read, seen =
      pcall(view, own, values[2 * i - 1], values[2 * i], after_ms, after_id, limit)
    if not is_read then
      local why = type(seen) == 'table' and seen.err or tostring(seen)
      if not string.find(why, 'WRONGTYPE', 1, true) then error(seen, 0) end
    end
    views[i] = is_read and seen
  end
  return views
end

-- Reads one key by itself: how many wait, if it is a queue; its value and in how many milliseconds it
-- expires, if it has one; nothing for other keys.
local function peek(keys)
  local kind = redis.call('TYPE', keys[1]).ok
  if kind == 'zset' then return { redis.call('ZCARD', keys[1]) } end
  if kind ~= 'string' then return {} end
  return { redis.call('GET', keys[1]), redis.call('PTTL', keys[1]) }
end

-- Returns how many are in the queue up to a ticket, and the waiters after it: ticket, mode, holder.
-- Arguments: the ticket, and the greatest number of waiters.
local function waiters(keys, args)
  local after, most = args[1], args[2]
  local found = redis.call(
    'ZRANGEBYSCORE', keys[QUEUE], '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  local views = {}
  for i = 1, #found, 2 do
    local waiter = format.place(found[i]) or { mode = 'x' }
    table.insert(views, { found[i + 1], waiter.mode, waiter.holder or '' })
  end
  return { redis.call('ZCOUNT', keys[QUEUE], '-inf', after), views }
end

-- Searches a part of all keys for those of a pattern. Returns where to go on and at most `most`
-- keys. Only if the shortest step of a SCAN finds more, it returns all of that step, because a SCAN
-- cannot go on within it. Arguments: the cursor, the pattern, `most`, and how many keys to visit.
local function scan(_, args)
  local cursor, pattern, most, left = args[1], args[2], tonumber(args[3]), tonumber(args[4])
  local keys, step, ended = {}, BATCH, false
  repeat
    local found = redis.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', step)
    local is_too_many = #keys + #found[2] > most
    if is_too_many and step > 1 then
      step = 1
    elseif is_too_many and #keys > 0 then
      ended = true
    else
      for _, key in ipairs(found[2]) do table.insert(keys, key) end
      cursor, left = found[1], left - step
      ended = cursor == '0' or left <= 0 or #keys >= most
    end
  until ended
  return { cursor, keys }
end
