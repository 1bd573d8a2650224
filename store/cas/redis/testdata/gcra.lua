-- A limit by the generic cell rate algorithm, with the time of the server.
-- KEYS[1] the key; ARGV: tokens a second, burst, cost. Answers allowed, remaining, retry after in seconds.
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local emission = 1 / rate
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
tat = math.max(tat, now)
local new = tat + emission * cost
local allowAt = new - burst * emission
if now < allowAt then
  return {0, 0, tostring(allowAt - now)}
end
redis.call('SET', KEYS[1], new, 'EX', math.ceil(new - now) + 1)
return {1, math.floor((now - allowAt) / emission), '0'}
