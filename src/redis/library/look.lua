-- What keeps a queue moving when notices are lost or processes die.

-- Looks at a resource that a process waits for. Arguments: the place and the attempt of its oldest
-- waiter, or nothing, and the caller. It answers
--
--   in how many milliseconds to look again, whether others may depend on that, whether the place is
--   lost, the attempts of this process to which the resource is handed over, and the public ID of
--   the grant, whose waiter may not know it yet: see queue.hand_over
--
-- or 'wider': see acquire.lua.
local function look(keys, args)
  local place, attempt, how = args[1], args[2], queue.how(args[3])
  questions.answer(keys, how.process)
  local holder, value = grants.holder(keys)
  if readers.are_missing(keys, value) then return { 'wider' } end
  local shared = readers.of(keys, value)
  if shared then return shared:look(attempt, place, how) end
  local left_ms = redis.call('PTTL', keys[RESOURCE])
  local lost = 0
  if place ~= '' and not (holder and grants.is_own(holder, attempt))
    and not redis.call('ZSCORE', keys[QUEUE], place) then lost = 1 end
  local called = holder and holder.process
  if called == how.process then
    -- The notice may have been lost, so this answer repeats it.
    return { math.max(left_ms - LAPSED_MS, FOREIGN_MS), 1, lost, holder.id }
  end
  redis.call('PEXPIRE', keys[QUEUE], QUEUE_MS)
  local is_lapsed = called and left_ms <= LAPSED_MS
  if is_lapsed then how.lapsed = { [called] = true } end
  local answer_ms = questions.check(keys, how, is_lapsed)
  if answer_ms == 0 then
    -- The process must still be known when the rest of its places is dropped.
    if is_lapsed then redis.call('PEXPIRE', keys[RESOURCE], LAPSED_MS) end
    return { 0, 0, lost }
  end
  local again_ms, is_open = left_ms, called
  if left_ms == -2 or is_lapsed then
    local handed = queue.pass_on(keys, how)
    if handed == WIDER then return { 'wider' } end
    again_ms = ({ [FREE] = -2, [HANDED] = PROVISIONAL_MS, [MORE] = 0 })[handed]
    is_open = handed == HANDED
  elseif called then
    again_ms = left_ms - LAPSED_MS
  elseif not holder then
    -- The lock was made without leasehold. Nobody announces its end, so look often.
    again_ms = FOREIGN_MS
  end
  if answer_ms then
    is_open = true
    again_ms = again_ms < 0 and answer_ms or math.min(again_ms, answer_ms)
  end
  return { again_ms, is_open and 1 or 0, lost, '', holder and not called and holder.id or '' }
end

-- Drops places of dead processes from a full queue, and asks the others. Arguments: the ticket after
-- which to begin, and the caller. It answers how many it dropped, and the ticket to go on after, or
-- nothing.
local function sweep(keys, args)
  local after, how = args[1], queue.how(args[2])
  local dropped = 0
  questions.answer(keys, how.process)
  if after == '-inf' then
    local answer_ms, silent = questions.check(keys, how, true)
    if answer_ms == 0 or how.unheard == IN_DOUBT then return { silent, '' } end
    dropped = silent
  end
  local places = redis.call(
    'ZRANGEBYSCORE', keys[QUEUE], '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, CHUNK)
  local of, channels = {}, {}
  for i = 1, #places, 2 do
    local process = string.match(places[i], '^%x*')
    if not of[process] then
      of[process] = {}
      table.insert(channels, '\1n' .. process)
    end
    table.insert(of[process], places[i])
  end
  local heard = redis.call('PUBSUB', 'NUMSUB', unpack(channels))
  for i = 1, #heard, 2 do
    if heard[i + 1] == 0 then
      dropped = dropped + redis.call('ZREM', keys[QUEUE], unpack(of[string.sub(heard[i], 3)]))
    end
  end
  return { dropped, #places == 2 * CHUNK and places[#places] or '' }
end
