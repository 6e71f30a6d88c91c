-- Searches a part of all keys for those of a pattern. Returns where to go on and at most `most`
-- keys. Only if the shortest step of a SCAN finds more, it returns all of that step, because a SCAN
-- cannot go on within it.
local cursor, pattern, most, left = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
-- See `refuse`.
redis.call('DEL', '\1-')
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
