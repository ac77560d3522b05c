-- Gives back what `admit.lua` spent on a request that was never executed; leases are given back by ZREM.
--
-- KEYS  one per limit that was spent from
-- ARGV  per limit: kind, cost; then: when it was spent (µs)

local DAY = 86400000000
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local then_ = tonumber(ARGV[2 * #KEYS + 1])

local function whole(number)
  return string.format('%.0f', number)
end

for i, key in ipairs(KEYS) do
  local value = redis.pcall('GET', key)
  local cost = tonumber(ARGV[2 * i])
  if type(value) ~= 'string' then
    -- Nothing is owed any more.
  elseif ARGV[2 * i - 1] == 'd' then
    local day, spent = value:match('^(%d+):(%d+)$')
    if tonumber(day) == math.floor(then_ / DAY) then
      local left = math.max(0, tonumber(spent) - cost)
      redis.call('SET', key, day .. ':' .. whole(left), 'PX', math.ceil((DAY - now % DAY) / 1000) + 3600000)
    end
  else
    local paid_at, written_at = value:match('^(%d+):(%d+)$')
    if paid_at and #value <= 33 then
      local debt = tonumber(paid_at) - cost - math.max(now, tonumber(written_at))
      if debt > 0 then
        redis.call('SET', key, whole(now + debt) .. ':' .. whole(now), 'PX', math.ceil(debt / 1000) + 1)
      else
        redis.call('DEL', key)
      end
    end
  end
end
return 1
