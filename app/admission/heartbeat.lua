-- Writes down that a gateway is alive, on Redis's own clock, and counts those that are.
--
-- KEYS     the heartbeats: until when each gateway counts (µs)
-- ARGV     the gateway, for how long it counts (µs)
-- returns  how many gateways count now

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local length = tonumber(ARGV[2])

local function whole(number)
  return string.format('%.0f', number)
end

local lapsed = redis.pcall('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now))
if type(lapsed) == 'table' then redis.call('DEL', KEYS[1]) end
-- Nobody counts for longer than this from now, unless the clock went back: who lives will say so again.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. whole(now + length), '+inf')
redis.call('ZADD', KEYS[1], whole(now + length), ARGV[1])
redis.call('PEXPIRE', KEYS[1], math.ceil(length / 1000) + 1)
return redis.call('ZCARD', KEYS[1])
