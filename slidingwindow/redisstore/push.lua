-- KEYS[1]: the count. KEYS[2]: the sums of its sources. ARGV: the source, the sum of all it has counted,
-- for how many milliseconds both are kept.
-- Numbers stay strings: as numbers of Lua they would be exact up to 2^53 only.
if redis.call('EXISTS', KEYS[1]) == 0 then
	redis.call('DEL', KEYS[2]) -- what the sums were added to was lost, if it was ever there
end
local had = redis.call('HGET', KEYS[2], ARGV[1]) or '0'
local sum = ARGV[2]
if #sum > #had or #sum == #had and sum > had then -- and not one that was held up and comes too late
	redis.call('DECRBY', KEYS[1], had)
	local added = redis.pcall('INCRBY', KEYS[1], sum)
	if type(added) == 'table' and added.err then
		redis.call('SET', KEYS[1], '9223372036854775807') -- the largest there is
	end
	redis.call('HSET', KEYS[2], ARGV[1], sum)
	redis.call('PEXPIRE', KEYS[1], ARGV[3])
	redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
return redis.call('GET', KEYS[1]) or '0'
