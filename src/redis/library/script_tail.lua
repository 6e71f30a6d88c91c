-- A server that cannot run the function refuses this command, which changes nothing: a replica
-- refuses any, and one without memory refuses the second.
local first
if #KEYS == 0 then
  -- A search of one node of a Cluster writes nothing.
elseif wanted.flags[1] then
  first = redis.pcall('ZREM', KEYS[QUEUE], '')
else
  first = redis.pcall('SETRANGE', KEYS[COUNTER], '0', '')
end
if type(first) == 'table' and first.err and not string.find(first.err, 'WRONGTYPE', 1, true) then
  return first
end
return wanted.callback(KEYS, ARGV)
