-- KEYS[1]: the count. ARGV: how much is added, for how many milliseconds it is kept.
-- Numbers stay strings: as numbers of Lua they would be exact up to 2^53 only.
local added = redis.pcall('INCRBY', KEYS[1], ARGV[1])
if type(added) == 'table' and added.err then
	if not string.find(added.err, 'overflow') then
		return added
	end
	redis.call('SET', KEYS[1], '9223372036854775807')
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('GET', KEYS[1])
