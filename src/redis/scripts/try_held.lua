-- Held exclusively, and not by the caller.
local grant, value = live_grant(KEYS[1])
if grant and grant.attempt ~= ARGV[4] and (ARGV[5] == '' or ARGV[5] ~= grant.request) then
  return refuse(KEYS[1], { 'held', 0, grant.holder, grant.id, grant.mode, grant.token })
end
