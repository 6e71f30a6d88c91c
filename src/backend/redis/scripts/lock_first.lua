if first then return { 'made', first, ARGV[1] } end
