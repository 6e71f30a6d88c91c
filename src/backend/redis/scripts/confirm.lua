-- A replay of the same request may have claimed the grant first. That is the same grant.
local resource, counter = KEYS[1], KEYS[2]
local ttl_ms, attempt, request = ARGV[1], ARGV[2], ARGV[3]
return find_own(resource, counter, '', ttl_ms, attempt, request, '0') or { 'gone' }
