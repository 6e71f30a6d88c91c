-- The verbs that acquire. Their arguments begin with
--
--   lock_id, ttl_ms, the rest of the record of a new grant, caller (see queue.how)
--
-- They answer
--
--   'made', token, lock ID, handed      the attempt has a grant
--   token                               the same, by a new grant that handed nothing over
--   'found', token, lock ID, handed, id it has the grant of an earlier request
--   'held', look, holder, id, mode, token   another holds it; see LOOK_NOW and LOOK_SOON
--   'queued', left_ms, was_queued       it waits; how long the grant lasts, as far as known; 1 if
--                                       it had a place already
--   'differs', field; 'taken'; 'many'; 'full'; 'gone'; 'wider'
--
-- `wider` asks for the same call with all nine keys: see verbs.lua.

-- Refuses a try.
local function refuse_held(holder)
  if not holder or holder.process then return { 'held', 0 } end
  return { 'held', 0, holder.holder, holder.id, holder.mode, holder.token }
end

-- The place of the attempt.
local function own_place(args)
  -- The rest begins with the attempt twice.
  return queue.process_of(args[4]) .. string.sub(args[3], 33)
end

-- Hands a free resource over to the first waiter that is alive. That nobody has done so before is a
-- doubt.
local function hand_over_in_doubt(keys, how)
  if not keys[QUESTION] then return WIDER end
  questions.answer(keys, how.process)
  return questions.check(keys, how, true) == 0 and MORE or queue.hand_over(keys, how)
end

-- Hands a resource over whose key a try has set. Returns the answer to the try, or nil if all who
-- waited are dead.
local function serve_others(keys, caller)
  local is_done, handed = pcall(hand_over_in_doubt, keys, queue.how(caller))
  if handed == FREE then return nil end
  if handed ~= HANDED then redis.call('DEL', keys[RESOURCE]) end
  if not is_done then error(handed, 0) end
  -- The caller must look, because perhaps nobody else does.
  return handed == WIDER and { 'wider' } or { 'held', LOOK_NOW }
end

-- Acquires a resource that is free and that nobody waits for. If it fails, because another client
-- wrote a key of another type, it leaves nothing.
local function try(keys, args)
  if string.byte(args[3], TERMS_AT) == EXCLUSIVE then
    local now_us = clock()
    local ends_ms = end_of(now_us, args[2])
    if redis.call('SET', keys[RESOURCE], args[1], 'NX', 'PXAT', ends_ms) then
      local others = redis.call('EXISTS', keys[QUEUE]) == 1 and serve_others(keys, args[4])
      if others then return others end
      local last = redis.pcall('GETSET', keys[COUNTER], now_us)
      if last and last.err then
        redis.call('DEL', keys[RESOURCE])
        return last
      end
      local token = token_after(last, keys[COUNTER], now_us)
      redis.call('SET', keys[RECORD], token .. ':' .. args[3], 'PXAT', ends_ms)
      return token
    end
  end
  local holder, value = grants.holder(keys)
  local asked = format.asked(args)
  local own = grants.find_own(keys, asked, holder)
  if own then return own end
  if readers.are_missing(keys, value, asked.mode) then return { 'wider' } end
  local how = queue.how(args[4])
  local shared = readers.of(keys, value)
  local same
  if shared then
    own, same = shared:find_own(asked, nil, how)
    if own then return own end
    if shared:count() > 0 then return shared:try(asked, how, same) end
    local handed = shared:settle(how)
    if handed ~= FREE then return { 'held', LOOK_NOW } end
  elseif value then
    return refuse_held(holder)
  elseif redis.call('EXISTS', keys[QUEUE]) == 1 then
    local handed = hand_over_in_doubt(keys, how)
    if handed ~= FREE then return { 'held', LOOK_NOW } end
  end
  if asked.mode == 's' then
    return { 'made', readers.join(nil, keys, asked), asked.lock_id }
  end
  return grants.make(keys, asked.lock_id, asked.ttl_ms, asked.rest)
end

-- The grant of a repeated sending or request, whose place is removed. If there is none, the second
-- result is the shared grants, the third whether one of them has the lock ID, and the fourth the
-- value of the resource's key.
local function find_again(keys, asked, place, how)
  local holder, value = grants.holder(keys)
  local own = grants.find_own(keys, asked, holder)
  if own then
    redis.call('ZREM', keys[QUEUE], place)
    return own
  end
  if readers.are_missing(keys, value, asked.mode) then return { 'wider' } end
  local shared, same = readers.of(keys, value), nil
  if shared then own, same = shared:find_own(asked, place, how) end
  return own, shared, same, value
end

-- Acquires a resource that is free, or enters its queue. More arguments: what may be there already,
-- and the greatest number of waiters. 0: nothing, and the attempt is exclusive. 2: a grant of an
-- earlier request, or other readers. 1: the attempt's own grant or place, because an earlier sending
-- may have been executed.
local function enter(keys, args)
  local place = own_place(args)
  local again = args[5] == '1'
  questions.answer(keys, queue.process_of(args[4]))
  if args[5] ~= '0' then
    local asked = format.asked(args)
    local how = queue.how(args[4])
    local own, shared, same = find_again(keys, asked, place, how)
    if own then return own end
    if again and redis.call('ZSCORE', keys[QUEUE], place) then
      return { 'queued', UNKNOWN_MS, 1 }
    end
    if same then return { 'taken' } end
    if asked.mode == 's' and redis.call('EXISTS', keys[QUEUE]) == 0 then
      local count = shared and shared:count() or 0
      local joins = count > 0 and count < how.holders_max
      if joins or count == 0 and redis.call('EXISTS', keys[RESOURCE]) == 0 then
        return { 'made', readers.join(joins and shared or nil, keys, asked), asked.lock_id }
      end
    end
  end
  local last = queue.last_ticket(keys)
  local left_ms = UNKNOWN_MS
  if not last then
    left_ms = redis.call('PTTL', keys[RESOURCE])
    -- A lock without an expiry is foreign. GET fails for a key of another type, which is no lock.
    if left_ms == -1 then redis.call('GET', keys[RESOURCE]) end
    if left_ms == -2 and string.byte(args[3], TERMS_AT) == EXCLUSIVE then
      return grants.make(keys, args[1], args[2], args[3])
    end
  end
  if queue.enter(keys, last, place, tonumber(args[6])) then
    return { 'queued', left_ms, 0 }
  end
  return { 'full' }
end

-- Confirms a hand-over. A repeated request may have claimed the grant first. That is the same grant.
local function confirm(keys, args)
  local place = own_place(args)
  -- The usual case: the key has the place of this attempt, as `hand_over` wrote it.
  if redis.call('MGET', keys[RESOURCE])[1] == '\1' .. place then
    return grants.make(keys, args[1], args[2], args[3])
  end
  local own = find_again(keys, format.asked(args), place, queue.how(args[4]))
  return own or { 'gone' }
end

-- Finds what an attempt has, and makes no new grant. It is run when the server has no memory for
-- `try` or `enter`, with the arguments of those.
local function find(keys, args)
  local asked = format.asked(args)
  -- A try has fewer arguments.
  local waits = args[5] ~= nil
  local place, how = waits and own_place(args) or '', queue.how(args[4])
  if waits then questions.answer(keys, how.process) end
  local own, _, same, value = find_again(keys, asked, place, how)
  if own then return own end
  if redis.call('ZSCORE', keys[QUEUE], place) then return { 'queued', UNKNOWN_MS, 1 } end
  if waits then return { same and 'taken' or 'gone' } end
  -- Nothing but memory may be missing for one more shared grant.
  local is_held = value and not (asked.mode == 's' and readers.of(keys, value))
  return is_held and { 'held', 0 } or { 'gone' }
end
