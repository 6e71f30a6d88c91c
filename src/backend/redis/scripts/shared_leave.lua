-- Ends a live shared grant beside others of which one is live.
local function leave()
  local records, ends, tokens = '\1r' .. resource, '\1e' .. resource, '\1t' .. resource
  local grant = read_rest(string.match(leaves.record, '^%d+:(.*)$'))
  local left_ms = leaves.last_ms - leaves.now
  if not grant or left_ms <= 0 then return false end
  -- The other keys would exist for too long: see Shared:move_end.
  if leaves.is_last and redis.call('PTTL', records) > left_ms + 2 * KEPT_MS then return false end
  local fields = { 'l' .. lock_id, 'g' .. grant.id }
  local request = 'q' .. grant.request
  if grant.request ~= '' and redis.call('HGET', records, request) == lock_id then
    table.insert(fields, request)
  end
  redis.call('HDEL', records, unpack(fields))
  redis.call('ZREM', ends, lock_id)
  redis.call('ZREM', tokens, lock_id)
  if leaves.is_last then redis.call('PEXPIREAT', resource, leaves.last_ms) end
  return true
end

if leave() then return { 'ok', 0 } end
