-- The queue of those who wait for a resource: a sorted set of places by tickets, which rise.
--
-- A hand-over gives the resource to the first waiter whose process listens: the resource's key
-- gets the byte 0x01 and that place as its value, which is no lock ID, and the process is
-- notified. It confirms within PROVISIONAL_MS, or the hand-over lapses. It remains visible for
-- LAPSED_MS after that, so that a look can see which process it was.
local queue = {}

-- The process of a caller.
function queue.process_of(caller)
  return string.sub(caller, 1, 32)
end

-- Reads what verbs know of their caller: the process, what a notice means that reached nobody, and
-- the greatest number of readers. A look adds `lapsed`, a set of processes that may listen but did
-- not confirm a hand-over in time.
function queue.how(caller)
  return {
    process = queue.process_of(caller),
    unheard = string.byte(caller, 33),
    holders_max = tonumber(string.sub(caller, 34)),
  }
end
-- See readers.lua.
local readers = {}

-- Notifies a process that one of its places has its turn. Returns whether the process may be alive.
-- One without a subscriber is dead, unless its connection may have been lost a moment ago: then
-- there is a doubt (`how.is_in_doubt`).
--
-- PUBLISH also counts subscribers to patterns, so a monitoring client makes dead processes seem
-- alive. If there are such clients, or after a lapse, which they may have caused, direct subscribers
-- are counted too. Otherwise this extra command is saved.
function queue.notify(keys, process, attempt, how)
  local channel = '\1n' .. process
  local heard = redis.pcall('PUBLISH', channel, 'call:' .. attempt .. ':' .. keys[RESOURCE])
  -- A refused PUBLISH, by a user who may not, shows no death. The process finds its turn by a look.
  if type(heard) ~= 'number' then return true end
  if how.unheard == IN_DOUBT then
    how.is_in_doubt = how.is_in_doubt or heard == 0
    return true
  end
  if (how.unheard == MONITORED or how.lapsed) and heard > 0 then
    heard = redis.pcall('PUBSUB', 'NUMSUB', channel)[2] or heard
  end
  return heard > 0
end

-- Makes the grant of a place. Returns its token, or nil if it cannot be made.
local function make_grant(keys, place)
  local waiter = format.place(place)
  if not waiter or waiter.is_newer then return nil end
  local rest = format.rest(waiter.id, waiter.id, waiter.terms)
  local is_made, token = pcall(grants.make, keys, waiter.lock_id, waiter.ttl_ms, rest)
  return is_made and token or nil
end

-- Hands the resource over to the first waiter whose process listens. Returns FREE if nobody
-- waits, HANDED, MORE if it found only dead waiters so far and must be called again, or WIDER if
-- the first waiter asks for a shared grant, or a notice can give a doubt, and the keys for those
-- were not declared. Otherwise the resource's key is as it was.
--
-- In a Cluster no verb touches a key that it has deleted: while the slot is moved, the node would
-- take it for one that is moved already, and end the verb. A queue is deleted with its last place
-- (`how.is_last`).
--
-- If the caller can grant straight (`how.is_straight`), and the first waiter is an exclusive one of
-- its process, it returns GRANTED, and `how.granted` and `how.token` of the grant: that waiter need
-- neither be notified nor confirm.
--
-- A caller that has taken the first place and its ticket out of the queue gives that as `first`.
function queue.hand_over(keys, how, first)
  local dead, left = {}, IN_CLUSTER and not how.is_last and redis.call('ZCARD', keys[QUEUE])
  for _ = 1, CHUNK do
    if how.is_last or left == 0 then return FREE end
    first = first or redis.call('ZPOPMIN', keys[QUEUE])
    local place, ticket = first[1], first[2]
    if not place then return FREE end
    first = nil
    if left then
      left = left - 1
      how.is_last = left == 0
    end
    local process, attempt, mode = string.match(place, '^(%x+):(%x+):(%a):')
    if mode == 's' and not keys[READERS] or how.unheard == IN_DOUBT and not keys[QUESTION] then
      redis.call('ZADD', keys[QUEUE], ticket, place)
      redis.call('PEXPIRE', keys[QUEUE], QUEUE_MS)
      return WIDER
    end
    if how.is_straight and process == how.process and mode == 'x' then
      how.granted, how.token = attempt, make_grant(keys, place)
      if how.token then return GRANTED end
    end
    if process and not dead[process] then
      if queue.notify(keys, process, attempt, how) then
        if mode == 's' then return readers.start(keys, attempt, place, how) end
        redis.call('SET', keys[RESOURCE], '\1' .. place, 'PX', CALLED_MS)
        -- Another client may set a lock ID that a caller chose, and must not find the record of
        -- the grant that ended then.
        if not how.is_plain then redis.call('DEL', keys[RECORD]) end
        questions.ask_in_doubt(keys, how)
        return HANDED
      end
      dead[process] = true
    end
  end
  return MORE
end

-- Ends what holds the resource, and hands it over or frees it. `how.is_plain` is whether that is an
-- exclusive grant with a lock ID that leasehold chose.
function queue.pass_on(keys, how, first)
  local handed = queue.hand_over(keys, how, first)
  if handed == FREE or handed == MORE then
    redis.call('DEL', keys[RESOURCE], keys[RECORD])
  end
  return handed
end

-- The ticket of the last place; nil if the queue is empty.
function queue.last_ticket(keys)
  return redis.call('ZRANGE', keys[QUEUE], '-1', '-1', 'WITHSCORES')[2]
end

-- Puts a place at the end, behind the one with the ticket `last`. Returns whether there was room.
function queue.enter(keys, last, place, waiters_max)
  local ticket = last and last + 1 or 1
  -- The first ticket is 1, so there are fewer than `ticket` places.
  if ticket > waiters_max and redis.call('ZCARD', keys[QUEUE]) >= waiters_max then
    return false
  end
  redis.call('ZADD', keys[QUEUE], ticket, place)
  if not last then redis.call('PEXPIRE', keys[QUEUE], QUEUE_MS) end
  return true
end
