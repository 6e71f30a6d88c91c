local first = ARGV[7] == 's' and try_first(KEYS[1], KEYS[2])
if first then return { 'made', first, ARGV[1] } end
