-- The queue of those who wait for a resource: a sorted set of places by tickets, which rise.
--
-- A hand-over gives the resource to the first waiter whose process listens: the resource's key
-- gets the byte 0x01 and that place as its value, which is no lock ID, and the process is
-- notified. It confirms within PROVISIONAL_MS, or the hand-over lapses. It remains visible for
-- LAPSED_MS after that, so that a look can see which process it was.
local queue = {}
-- See readers.lua.
local readers = {}

-- Notifies a process that one of its places has its turn. Returns whether the process listens: one
-- without a subscriber is dead.
--
-- PUBLISH also counts subscribers to patterns, so a monitoring client makes dead processes seem
-- alive. If there are such clients (`is_monitored`), or after a lapse, which they may have caused,
-- direct subscribers are counted too. Otherwise this extra command is saved.
function queue.notify(keys, process, attempt, how)
  local channel = '\1n' .. process
  local heard = redis.pcall('PUBLISH', channel, 'call:' .. attempt .. ':' .. keys[RESOURCE])
  if how.is_in_doubt then return true end
  if (how.is_monitored or how.lapsed) and type(heard) == 'number' and heard > 0 then
    heard = redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or heard
  end
  return type(heard) == 'number' and heard > 0
end

-- What hand-overs depend on: see the arguments of the verbs. `lapsed` is a process that may
-- listen but did not confirm a hand-over in time. Its waiters and those of dead processes are
-- dropped.
function queue.how(is_monitored, holders_max)
  return {
    is_monitored = is_monitored == '1',
    -- After a failover processes that live may not be subscribed yet.
    is_in_doubt = is_monitored == '2',
    holders_max = tonumber(holders_max),
  }
end

-- Hands the resource over to the first waiter whose process listens. Returns FREE if nobody
-- waits, HANDED, MORE if it found only dead waiters so far and must be called again, or WIDER if
-- the first waiter asks for a shared grant and the keys for those were not declared. If it does
-- not return HANDED, the resource's key is as it was.
function queue.hand_over(keys, how)
  local dead = {}
  if how.lapsed then dead[how.lapsed] = true end
  for _ = 1, CHUNK do
    local first = redis.call('ZPOPMIN', keys[QUEUE])
    local place = first[1]
    if not place then return FREE end
    local process, attempt, mode = string.match(place, '^(%x+):(%x+):(%a):')
    if mode == 's' and not keys[READERS] then
      redis.call('ZADD', keys[QUEUE], first[2], place)
      redis.call('PEXPIRE', keys[QUEUE], QUEUE_MS)
      return WIDER
    end
    if process and not dead[process] then
      if queue.notify(keys, process, attempt, how) then
        if mode == 's' then return readers.start(keys, attempt, place, how) end
        redis.call('SET', keys[RESOURCE], '\1' .. place, 'PX', CALLED_MS)
        -- Another client may set a lock ID that a caller chose, and must not find the record of
        -- the grant that ended then.
        if not how.ended or how.ended.is_given ~= false then redis.call('DEL', keys[RECORD]) end
        return HANDED
      end
      dead[process] = true
    end
  end
  return MORE
end

-- Ends what holds the resource, and hands it over or frees it. `ended` is the grant, if it is one.
function queue.pass_on(keys, how, ended)
  how.ended = ended
  local handed = queue.hand_over(keys, how)
  if handed == MORE and how.lapsed then
    redis.call('PEXPIRE', keys[RESOURCE], LAPSED_MS)
  elseif handed == FREE or handed == MORE then
    redis.call('DEL', keys[RESOURCE], keys[RECORD])
  end
  return handed
end

-- The ticket of the last place; nil if the queue is empty.
function queue.last_ticket(keys)
  return redis.call('ZRANGE', keys[QUEUE], '-1', '-1', 'WITHSCORES')[2]
end

-- Puts a place at the end, behind the one with the ticket `last`. Returns whether there was room.
--
-- All tickets of a queue have the random fraction of its first ticket. So a sweep that comes late
-- can recognize the places of a newer queue.
function queue.enter(keys, last, place, attempt, waiters_max)
  local ticket = last and last + 1 or 1 + tonumber(string.sub(attempt, 1, 5), 16) / 0x100000
  -- The first ticket is between 1 and 2, so at most `ticket` places are in the queue.
  if ticket > waiters_max and redis.call('ZCARD', keys[QUEUE]) >= waiters_max then
    return false
  end
  redis.call('ZADD', keys[QUEUE], ticket, place)
  if not last then redis.call('PEXPIRE', keys[QUEUE], QUEUE_MS) end
  return true
end
