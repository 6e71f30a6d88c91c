-- Drops the places of one process, or of all processes without a subscriber, from a part of
-- the queue. A process is notified when all of its places were dropped, so that its live
-- waiters enter again.
--
-- The places of one process are dropped up to the ticket that was the last one at its lapse.
-- Tickets with another fraction belong to a newer queue.
local resource = KEYS[1]
local process, after, last = ARGV[1], ARGV[2], ARGV[3]
local queue = '\1q' .. resource
local places =
  redis.call('ZRANGEBYSCORE', queue, '(' .. after, last, 'WITHSCORES', 'LIMIT', 0, CHUNK)
local of = {}
for i = 1, #places, 2 do
  local owner = string.sub(places[i], 1, 32)
  if process == '' or places[i + 1] % 1 == last % 1 then
    of[owner] = of[owner] or {}
    table.insert(of[owner], places[i])
  end
end
if process == '' then
  local channels = {}
  for owner in pairs(of) do table.insert(channels, '\1n' .. owner) end
  local heard = redis.call('PUBSUB', 'NUMSUB', unpack(channels))
  for i = 1, #heard, 2 do
    if heard[i + 1] > 0 then of[string.sub(heard[i], 3)] = nil end
  end
else
  of = { of[process] }
end
local dropped = 0
for _, dead in pairs(of) do dropped = dropped + redis.call('ZREM', queue, unpack(dead)) end
if #places == 2 * CHUNK then return { dropped, places[#places] } end
if process ~= '' then redis.pcall('PUBLISH', '\1n' .. process, 'skip::' .. resource) end
return { dropped, '' }
