-- Whether the processes that wait are alive.
--
-- A process that has gone has no subscriber. But a host that vanished counts as subscribed for as
-- long as the server keeps its connection. So a caller in doubt puts a question: a set with the
-- names of the other processes among the first CHUNK places, each of which gets a `look`. A process
-- answers by removing its name: see the callers of questions.answer. Those whose names are still
-- there after ANSWER_MS lose their places, all together.
--
-- A constant member keeps the set when all have answered, and its expiry tells its age, also on
-- another server. Nobody is named later, so a name stands for silence since the question.
local questions = {}
local CONSTANT = ''

-- Removes the name of a process that has just called.
function questions.answer(keys, process)
  redis.call('SREM', keys[QUESTION], process)
end

-- How long ago the question was put; nil if there is none, or its age cannot be true.
local function age_of(keys)
  local left_ms = redis.call('PTTL', keys[QUESTION])
  return left_ms >= 0 and left_ms <= QUESTION_MS and QUESTION_MS - left_ms or nil
end

local function put(keys, named)
  redis.call('SADD', keys[QUESTION], CONSTANT, unpack(named))
  redis.call('PEXPIRE', keys[QUESTION], QUESTION_MS)
  for _, process in ipairs(named) do
    redis.pcall('PUBLISH', '\1n' .. process, 'look::' .. keys[RESOURCE])
  end
end

-- Drops the first places of those who have not answered, and of the processes in `how.lapsed`. A
-- caller in doubt asks the others, unless there was a question a moment ago.
--
-- Returns in how many milliseconds there will be an answer, or nil; 0 if there may be more to
-- drop. And how many places were dropped. If those were all, `how.is_last` says so.
function questions.check(keys, how, in_doubt)
  local age_ms = age_of(keys)
  local is_over = age_ms and age_ms >= ANSWER_MS
  local answer_ms = age_ms and not is_over and ANSWER_MS - age_ms or nil
  local asks = in_doubt and not (age_ms and age_ms < PAUSE_MS)
  local silent, names = {}, {}
  for process in pairs(how.lapsed or {}) do silent[process] = true end
  if is_over then
    for _, name in ipairs(redis.call('SMEMBERS', keys[QUESTION])) do
      if name ~= CONSTANT then
        -- The caller is alive: it is calling.
        if name ~= how.process then silent[name] = true end
        table.insert(names, name)
      end
    end
  end
  if not asks and #names == 0 and not next(silent) then return answer_ms, 0 end

  local places = redis.call('ZRANGE', keys[QUEUE], 0, CHUNK - 1)
  local dropped, skipped, others, seen = {}, {}, {}, {}
  for _, place in ipairs(places) do
    local process = string.match(place, '^%x*')
    if silent[process] then table.insert(dropped, place) end
    if not seen[process] and process ~= how.process then
      seen[process] = true
      table.insert(silent[process] and skipped or others, process)
    end
  end
  if #dropped > 0 then
    redis.call('ZREM', keys[QUEUE], unpack(dropped))
    how.is_last = #dropped == #places and #places < CHUNK
    for _, process in ipairs(skipped) do
      redis.pcall('PUBLISH', '\1n' .. process, 'skip::' .. keys[RESOURCE])
    end
    if #places == CHUNK then return 0, #dropped end
  end
  if #names > 0 then redis.call('SREM', keys[QUESTION], unpack(names)) end
  if not asks or #others == 0 then return answer_ms, #dropped end
  put(keys, others)
  return ANSWER_MS, #dropped
end

-- Puts a question to those who still wait if a notice gave a doubt: see queue.notify.
function questions.ask_in_doubt(keys, how)
  if how.is_in_doubt and not how.is_last then questions.check(keys, how, true) end
end
