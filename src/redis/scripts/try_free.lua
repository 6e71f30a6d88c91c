-- The usual cases come before the functions that they do not need, because making those costs
-- as much as a command does.
if ARGV[7] == 'x' and redis.call('EXISTS', KEYS[1], '\1q' .. KEYS[1]) == 0 then
  return make_grant(KEYS[1], KEYS[2], ARGV[1], ARGV[3], ARGV[2])
end
