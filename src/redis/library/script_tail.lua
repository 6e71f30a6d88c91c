-- Begins with a write that changes nothing, which a server refuses that would not run the function:
-- a replica refuses any, and one without memory refuses SETRANGE. It lets ZREM pass, and does not
-- refuse a script for want of memory once that has written, so the verb behind it runs as a function
-- with `allow-oom` does. A verb without that flag must have a COUNTER among its keys.
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
