local resource = KEYS[1]
if not redis.call('GET', resource) then return refuse(resource, false) end
return mark(live_grant(resource))
