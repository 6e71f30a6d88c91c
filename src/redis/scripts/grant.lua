-- Answers without having changed anything. A master that has become a replica still answers
-- reads, from data that may be out of date, but it refuses writes. So this first makes a
-- write that changes nothing, because the key never exists.
local function refuse(resource, reply)
  redis.call('DEL', '\1-' .. resource)
  return reply
end

-- Reads what a place or a record says of its attempt. The `attempt` of a grant that a replay has
-- claimed goes on with a mark and that replay's attempt, so it equals no attempt, and no clean-up
-- ends the grant. Its `id`, which is public, stays.
local function read_rest(rest)
  local attempt, id, mode, given, locks, requests, at =
    string.match(rest or '', '^%d+:((%x+)!?%x*):(%a):(%d):(%d+):(%d+):()')
  if not attempt then return nil end
  return {
    rest = rest,
    attempt = attempt,
    id = id,
    mode = mode,
    given = given == '1',
    lock_id = string.sub(rest, at, at + locks - 1),
    request = string.sub(rest, at + locks, at + locks + requests - 1),
    holder = string.sub(rest, at + locks + requests),
  }
end
