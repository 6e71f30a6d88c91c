if first then return first end
