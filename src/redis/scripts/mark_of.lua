-- Identifies what holds the resource now, unlike anything that held it before or will later:
-- the token of a grant, the attempt of a hand-over, the hash of the value of a lock without a
-- record, or the hash of the mark of shared grants and the newest token of them.
local function mark(grant, value, shared)
  if grant then return grant.token or grant.attempt end
  local hash = redis.sha1hex(value)
  return shared and hash .. ':' .. shared:newest_token() or hash
end
