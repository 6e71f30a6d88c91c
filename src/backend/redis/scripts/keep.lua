-- Makes the other keys of a resource that is shared expire at this time. It is KEPT_MS later than
-- necessary when it is set, so that not each change among the grants has to move it.
local function keep(resource, until_ms)
  for _, name in ipairs({ '\1r', '\1e', '\1t' }) do
    redis.call('PEXPIREAT', name .. resource, until_ms)
  end
end
