local resource = KEYS[1]
local force, lock_id, aim = ARGV[1] == '1', ARGV[2], ARGV[3]
-- MGET treats a key of another type as absent; GET fails.
local found = redis.call('MGET', resource, '\1h' .. resource)
