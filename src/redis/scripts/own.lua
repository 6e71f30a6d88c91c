-- What the caller asks for, as each script that acquires has it in its first arguments.
local asked = {
  lock_id = ARGV[1],
  ttl_ms = ARGV[2],
  rest = ARGV[3],
  attempt = ARGV[4],
  request = ARGV[5],
  given = ARGV[6],
  mode = ARGV[7],
}

-- Returns in which field the repeated request differs from its live grant, or else what the
-- record of the grant is from now on: see read_rest.
local function claim(grant)
  if asked.given == '1' and asked.lock_id ~= grant.lock_id then return 'lock_id' end
  if asked.mode ~= grant.mode then return 'mode' end
  return nil, (string.gsub(grant.rest, '^(%d+:%x+)!?%x*', '%1!' .. asked.attempt, 1))
end

-- Finds the own grant of a repeated sending or a repeated request, where the resource's key has
-- this value and the grant this record.
local function find_own(resource, counter, grant)
  if not grant then return nil end
  if grant.attempt == asked.attempt then
    return keep_own(resource, counter, grant, asked.ttl_ms)
  end
  if asked.request ~= '' and grant.request == asked.request then
    local field, claimed = claim(grant)
    if field then return refuse(resource, { 'differs', field }) end
    if grant.process then
      grant.token = confirm(resource, counter, grant.lock_id, claimed, asked.ttl_ms)
    else
      redis.call('SET', '\1h' .. resource, grant.token .. ':' .. claimed)
      extend(resource, asked.ttl_ms)
    end
    return { 'found', grant.token, grant.lock_id, 0, grant.id }
  end
  return nil
end
