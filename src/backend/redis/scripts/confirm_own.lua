local grant, value = live_grant(KEYS[1])
if grant and grant.attempt == ARGV[4] then return keep_own(KEYS[1], KEYS[2], grant, ARGV[2]) end
