-- The usual case: the key has the place of this attempt, as `handover` wrote it. MGET treats a key
-- of another type as absent; GET fails.
if redis.call('MGET', KEYS[1])[1] == '\1' .. ARGV[10] .. ':' .. ARGV[3] then
  return { 'made', confirm(KEYS[1], KEYS[2], ARGV[1], ARGV[3], ARGV[2]), ARGV[1] }
end
