-- Returns how many are in the queue up to a ticket, and the waiters after it.
local queue, after, most = '\1q' .. KEYS[1], ARGV[1], ARGV[2]
local found =
  redis.call('ZRANGEBYSCORE', queue, '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
local told = {}
for i = 1, #found, 2 do
  local waiter = read_rest(string.sub(found[i], 33)) or { mode = 'x', holder = '' }
  table.insert(told, { found[i + 1], waiter.mode, waiter.holder })
end
return refuse(KEYS[1], { redis.call('ZCOUNT', queue, '-inf', after), told })
