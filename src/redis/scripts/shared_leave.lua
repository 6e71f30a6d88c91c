-- The usual cases of the end of a shared grant: nobody waits, and nothing has expired. This comes
-- before the functions that it does not need, and answers with a number instead of a table, like
-- shared_join.lua.
if aim == '' and not force and string.sub(found[1] or '', 1, 2) == '\1s'
  and redis.call('EXISTS', '\1q' .. resource, '\1p' .. resource) == 0
  and redis.call('HGET', '\1r' .. resource, 'm') == found[1]
then
  local records, ends, tokens = '\1r' .. resource, '\1e' .. resource, '\1t' .. resource
  local time = redis.call('TIME')
  local now = string.sub(time[1] .. string.rep('0', 6 - #time[2]) .. time[2], 1, -4)
  -- The two that end last, the later one behind the other.
  local two = redis.call('ZRANGE', ends, '-2', '-1')
  local is_last = two[#two] == lock_id
  local all_live = redis.call('ZCOUNT', ends, '-inf', '(' .. now) == 0
  if all_live and is_last and #two == 1 then
    redis.call('UNLINK', resource, records, ends, tokens, '\1h' .. resource)
    return 0
  end
  local own = 'l' .. lock_id
  local record = all_live and #two == 2 and redis.call('HGET', records, own)
  if record then
    local id, locks, requests, at =
      string.match(record, '^%d+:%d+:(%x+)!?%x*:%a:%d:(%d+):(%d+):()')
    local last_ms = is_last and redis.call('ZSCORE', ends, two[1])
    local left_ms = is_last and last_ms - now
    -- The other keys would exist for too long: see Shared:move_end.
    local moves = is_last and left_ms > 0
      and redis.call('PTTL', records) <= left_ms + 2 * KEPT_MS
    if id and (moves or not is_last) and redis.call('ZREM', ends, lock_id) == 1 then
      redis.call('ZREM', tokens, lock_id)
      redis.call('HDEL', records, own, 'g' .. id)
      if requests ~= '0' then
        local replay = 'q' .. string.sub(record, at + locks, at + locks + requests - 1)
        if redis.call('HGET', records, replay) == lock_id then
          redis.call('HDEL', records, replay)
        end
      end
      if moves then redis.call('PEXPIREAT', resource, last_ms) end
      return 0
    end
  end
end
