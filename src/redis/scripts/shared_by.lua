-- The shared grants of a resource whose key has this value; nil if it is not shared.
local function shared_by(resource, value)
  if not value or string.sub(value, 1, 2) ~= '\1s' then return nil end
  return sharing().marked(resource, value)
end
