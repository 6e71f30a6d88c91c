local resource = KEYS[1]
if not redis.call('GET', resource) then return refuse(resource, false) end
local grant, value = live_grant(resource)
return mark(grant, value, shared_by(resource, value))
