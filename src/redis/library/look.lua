-- What keeps a queue moving when notices are lost or processes die.

-- Looks at a resource that a process waits for. Arguments: the process, the place and the attempt
-- of its oldest waiter, or nothing; `is_monitored`, `holders_max`. It answers
--
--   in how many milliseconds to look again, whether the resource is handed over and not
--   confirmed, whether the place is lost, the attempts of this process to which it is handed
--   over, the process that did not confirm in time, and the last ticket at that moment
--
-- or 'shared': see acquire.lua.
local function look(keys, args)
  local process, place, attempt = args[1], args[2], args[3]
  local how = queue.how(args[4], args[5])
  local holder, value = grants.holder(keys)
  if readers.is_mark(value) and not keys[READERS] then return { 'shared' } end
  local shared = readers.of(keys, value)
  if shared then return shared:look(process, attempt, place, how) end
  local left_ms = redis.call('PTTL', keys[RESOURCE])
  local lost = 0
  if place ~= '' and not (holder and grants.is_own(holder, attempt))
    and not redis.call('ZSCORE', keys[QUEUE], place) then lost = 1 end
  local called = holder and holder.process
  if called == process then
    -- The notice may have been lost, so this answer repeats it.
    return { math.max(left_ms - LAPSED_MS, FOREIGN_MS), 1, lost, holder.id }
  end
  redis.call('PEXPIRE', keys[QUEUE], QUEUE_MS)
  local lapsed = called and left_ms <= LAPSED_MS and called
  if left_ms ~= -2 and not lapsed then
    if called then return { left_ms - LAPSED_MS, 1, lost } end
    -- The lock was made without leasehold. Nobody announces its end, so look often.
    if not holder then left_ms = FOREIGN_MS end
    return { left_ms, 0, lost }
  end
  -- Places after the current last one are newer than the lapse.
  local last = lapsed and queue.last_ticket(keys)
  how.lapsed = lapsed
  local handed = queue.pass_on(keys, how)
  if handed == WIDER then return { 'shared' } end
  local again_ms = ({ [FREE] = -2, [HANDED] = PROVISIONAL_MS, [MORE] = 0 })[handed]
  return { again_ms, handed, lost, '', lapsed or '', last or '0' }
end

-- Drops the places of one process, or of all processes without a subscriber, from a part of the
-- queue. Arguments: the process or nothing, the ticket after which to begin, and the last one. It
-- answers how many it dropped, and the ticket to go on after, or nothing. A process is notified
-- when all of its places were dropped, so that its live waiters enter again.
--
-- The places of one process are dropped up to the ticket that was the last one at its lapse.
-- Tickets with another fraction belong to a newer queue.
local function sweep(keys, args)
  local process, after, last = args[1], args[2], args[3]
  local places = redis.call(
    'ZRANGEBYSCORE', keys[QUEUE], '(' .. after, last, 'WITHSCORES', 'LIMIT', 0, CHUNK)
  local of = {}
  for i = 1, #places, 2 do
    local owner = string.match(places[i], '^%x*')
    if process == '' or places[i + 1] % 1 == last % 1 then
      of[owner] = of[owner] or {}
      table.insert(of[owner], places[i])
    end
  end
  if process == '' then
    local channels = {}
    for owner in pairs(of) do table.insert(channels, '\1n' .. owner) end
    local heard = redis.call('PUBSUB', 'NUMSUB', unpack(channels))
    for i = 1, #heard, 2 do
      if heard[i + 1] > 0 then of[string.sub(heard[i], 3)] = nil end
    end
  else
    of = { of[process] }
  end
  local dropped = 0
  for _, dead in pairs(of) do
    dropped = dropped + redis.call('ZREM', keys[QUEUE], unpack(dead))
  end
  if #places == 2 * CHUNK then return { dropped, places[#places] } end
  if process ~= '' then redis.pcall('PUBLISH', '\1n' .. process, 'skip::' .. keys[RESOURCE]) end
  return { dropped, '' }
end
