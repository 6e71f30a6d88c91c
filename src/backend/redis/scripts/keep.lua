-- Makes the other keys of a resource that is shared exist until this time at least, which is that
-- of the last grant's end. They expire KEPT_MS later, so that few changes among the grants have to
-- move that.
local function keep(resource, ends_ms)
  local kept_ms = string.format('%.0f', ends_ms + KEPT_MS)
  for _, name in ipairs({ '\1r', '\1e', '\1t' }) do
    redis.call('PEXPIREAT', name .. resource, kept_ms)
  end
end
