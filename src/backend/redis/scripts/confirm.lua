local resource, counter = KEYS[1], KEYS[2]
local asked = read_asked()
local how = { monitored = ARGV[8] == '1', holders_max = tonumber(ARGV[9]) }
asked.place = ARGV[10] .. asked.rest

-- A replay of the same request may have claimed the grant first. That is the same grant.
local own, _, _, shared = find_own(resource, counter, asked)
-- Further waiters may have their turn.
if own and shared then own[4] = settle(shared, how) end
return own or { 'gone' }
