-- Where functions are missing, the library runs as a script, which calls the function that its
-- first argument names.
local wanted
local verb = table.remove(ARGV, 1) .. SUFFIX
local redis = setmetatable({
  register_function = function(verbs)
    if verbs.function_name == verb then wanted = verbs end
  end,
}, { __index = redis })
