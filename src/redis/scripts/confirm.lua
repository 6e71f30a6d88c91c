local resource, counter = KEYS[1], KEYS[2]
local grant, value = live_grant(resource)
local how = { monitored = ARGV[8] == '1', holders_max = tonumber(ARGV[9]) }

-- A replay of the same request may have claimed the grant first. That is the same grant.
local own = find_own(resource, counter, grant)
local shared = not grant and shared_by(resource, value)
if shared then
  own = shared:find_own(counter, asked, ARGV[10] .. asked.rest)
  -- Further waiters may have their turn.
  if own then own[4] = shared:settle(how) end
end
return own or { 'gone' }
