-- The verbs that prolong and end grants. Releases answer
--
--   handed                     the grant was ended: see queue.hand_over
--   'passed', attempt, token   the same, and this attempt of the process has the resource now
--   'more', handed             some of the shared grants were ended, and the call must be repeated
--   'other', target            nothing was ended; this is what has the lock ID
--   'not', held                nothing was ended; 1 if somebody else holds the resource
--   'wider'                    see acquire.lua

-- Starts the TTL of a live grant again. Arguments: the lock ID and the TTL. It answers 'renewed'
-- and the public ID, which a lock that was made without leasehold does not have. The keys are all
-- nine, or the resource and its record: while a slot is moved in a Cluster, one of two nodes has
-- both of these, but none has a key that does not exist.
local function renew(keys, args)
  if #keys == 2 then keys = { [RESOURCE] = keys[1], [RECORD] = keys[2] } end
  local lock_id, ttl_ms = args[1], args[2]
  local holder, value = grants.holder(keys)
  if value == lock_id then
    if holder then
      format.must_read(holder)
      grants.extend(keys, ttl_ms)
      return { 'renewed', holder.id }
    end
    -- A record that still exists belongs to an ended grant, and must not expire at the same time
    -- as this lock.
    redis.call('DEL', keys[RECORD])
    redis.call('PEXPIRE', keys[RESOURCE], ttl_ms)
    return { 'renewed' }
  end
  if not readers.is_mark(value) then return { 'not', value and 1 or 0 } end
  if not keys[READERS] then return { 'wider' } end
  local shared = readers.of(keys, value)
  local grant = shared and shared:grant(lock_id)
  if not grant then return { 'not', (not shared or shared:count() > 0) and 1 or 0 } end
  format.must_read(grant)
  shared:extend(lock_id, ttl_ms)
  shared:move_end()
  return { 'renewed', grant.id }
end

-- Identifies what holds a resource, unlike anything that held it before or will later.
local function target_of(keys, holder, value)
  if holder then return holder.id end
  if not value then return false end
  local shared = readers.of(keys, value)
  return shared and shared:target() or 'v' .. redis.sha1hex(value)
end

-- What holds a resource, as the target of a release by force; nil if it is free. It needs the keys
-- of shared grants.
local function target(keys)
  local holder, value = grants.holder(keys)
  return target_of(keys, holder, value)
end

-- Why a grant must not be ended; nil if it is meant. Without a target, the lock ID must be one that
-- is never chosen again.
local function objection(grant, lock_id, aim)
  local last = string.match(aim, '^l(%x+)$')
  if last then return grant.last ~= last and { 'not', 1 } or nil end
  if aim == '' then format.must_read(grant) end
  local is_meant = grant.id == aim or aim == 't' .. (grant.token or '')
  if is_meant or aim == '' and not grant.is_given then return nil end
  return lock_id ~= '' and { 'other', grant.id } or { 'not', 1 }
end

-- The answer after a grant was passed on.
local function passed_on(handed, how)
  if handed == WIDER then return { 'wider' } end
  if handed == GRANTED then return { 'passed', how.granted, how.token } end
  return handed
end

-- Ends a plain grant: see format.is_plain.
local function release_plain(keys, caller, is_straight)
  -- What else is to be done can only be known before the first place is taken.
  local first = not IN_CLUSTER and redis.call('ZPOPMIN', keys[QUEUE]) or nil
  if first and not first[1] then
    redis.call('DEL', keys[RESOURCE], keys[RECORD])
    return FREE
  end
  local how = queue.how(caller)
  how.is_plain, how.is_straight = true, is_straight
  return passed_on(queue.pass_on(keys, how, first), how)
end

-- Ends a grant. Arguments: its lock ID, or nothing by force; the target, which is a public ID, `t`
-- and a token, `l` and the last attempt that got the grant, or what `target` returned; the caller; 1
-- if it can grant straight: see queue.hand_over.
local function release(keys, args)
  local lock_id, aim, is_straight = args[1], args[2], args[4] == '1'
  local found = redis.call('MGET', keys[RESOURCE], keys[RECORD])
  if found[1] == lock_id and found[2] and format.is_plain(found[2], aim, lock_id) then
    return release_plain(keys, args[3], is_straight)
  end
  local how = queue.how(args[3])
  local holder, value = grants.holder(keys, found)
  if not value then return { 'not', 0 } end
  if readers.are_missing(keys, value) then return { 'wider' } end
  local shared = readers.of(keys, value)
  if shared then return shared:release(lock_id, aim, how) end
  if lock_id ~= '' and value ~= lock_id then return { 'not', 1 } end
  -- What has no record is known by the hash of its value.
  local grant = holder or { id = target_of(keys, nil, value), is_given = true }
  how.is_straight, how.is_plain = is_straight, grant.is_given == false
  return objection(grant, lock_id, aim) or passed_on(queue.pass_on(keys, how), how)
end

function readers:release(lock_id, aim, how)
  local mark, token = string.match(aim, '^r(%x+):(%d+)$')
  if mark then
    if self.mark ~= '\1s' .. mark then return { 'not', 1 } end
    if aim ~= self:target() then
      -- Others have got a grant since, which is not ended with these.
      local more = self:forget_older(token)
      local handed = self:settle(how)
      return more and { 'more', handed } or handed
    end
    self:finish()
    return queue.pass_on(self.keys, how)
  end
  if lock_id == '' then
    lock_id = redis.call('HGET', self.keys[READERS], 'g' .. aim) or ''
  end
  local grant = self:grant(lock_id)
  if not grant then return { 'not', self:count() > 0 and 1 or 0 } end
  local why = objection(grant, lock_id, aim)
  if why then return why end
  self:forget({ lock_id })
  return self:settle(how)
end

-- Ends the grant of an attempt, or the hand-over to it, or removes its place. Arguments: the
-- attempt, its place, whether only a hand-over is meant, and the caller.
local function withdraw(keys, args)
  local attempt, place, only_called = args[1], args[2], args[3] == '1'
  local how = queue.how(args[4])
  questions.answer(keys, how.process)
  local holder, value = grants.holder(keys)
  if holder and grants.is_own(holder, attempt) and (holder.process or not only_called) then
    how.is_plain = holder.is_given == false
    return passed_on(queue.pass_on(keys, how), how)
  end
  if readers.are_missing(keys, value) then return { 'wider' } end
  local shared = readers.of(keys, value)
  if shared and shared:withdraw(attempt, place, only_called) then
    return shared:settle(how)
  end
  if redis.call('ZREM', keys[QUEUE], place) == 1 then
    -- The readers behind a writer that leaves need not wait until the others have ended.
    return shared and shared:settle(how) or FREE
  end
  if shared then return { 'not', shared:count() > 0 and 1 or 0 } end
  return { 'not', value and 1 or 0 }
end
