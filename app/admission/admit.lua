-- Decides one request against all limits of its tenant, on Redis's own clock: it spends from every one of them, or from none.
--
-- KEYS     one per limit
-- ARGV     per limit: kind ("r"equests, "c"haracters, in "f"light, "d"aily), scale, capacity, "1" if enforced else "0";
--          then: the request's characters, the length of its lease (µs), the name of its lease ("<unique>:<length of the lease>")
-- returns  {1 if admitted else 0, violated limits as bits, now (µs), the value of each limit afterwards}
--
-- A value that is not what this script writes counts as none. Numbers beyond 2^47 lose digits in tostring, so they are formatted.

local DAY = 86400000000
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local today = math.floor(now / DAY)
local count = #KEYS
local characters = tonumber(ARGV[4 * count + 1])
local lease = tonumber(ARGV[4 * count + 2])
local member = ARGV[4 * count + 3]

local function whole(number)
  return string.format('%.0f', number)
end

local function text(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'string' then return value end
  if type(value) == 'table' then redis.call('DEL', key) end
  return ''
end

-- What is owed is kept as two moments: when it will be paid, and when that was written. A clock that went back shows in the
-- second, and then nothing has been paid since.
local function owe(key, debt)
  redis.call('SET', key, whole(now + debt) .. ':' .. whole(now), 'PX', math.ceil(debt / 1000) + 1)
end

local function debt(key, capacity)
  local value = text(key)
  if value == '' then return 0 end
  local paid_at, written_at = value:match('^(%d+):(%d+)$')
  if not paid_at or #value > 33 then
    redis.call('DEL', key)
    return 0
  end
  local owed = tonumber(paid_at) - math.max(now, tonumber(written_at))
  if owed <= 0 then return 0 end
  if now >= tonumber(written_at) and owed <= capacity then return owed end
  -- The clock went back, or the limit was lowered. Written down, or the debt would stay until the clock is there again.
  owed = math.min(owed, capacity)
  owe(key, owed)
  return owed
end

local function spent_today(key)
  local value = text(key)
  if value == '' then return 0 end
  local day, spent = value:match('^(%d+):(%d+)$')
  -- "Tomorrow" is a clock that went back over midnight.
  if day and #spent <= 15 and (tonumber(day) == today or tonumber(day) == today + 1) then return tonumber(spent) end
  redis.call('DEL', key)
  return 0
end

local function held(key)
  local lapsed = redis.pcall('ZREMRANGEBYSCORE', key, '-inf', whole(now))
  if type(lapsed) == 'table' then
    redis.call('DEL', key)
    return 0
  end
  -- No lease ends later than its own length from now, unless the clock went back.
  local late = redis.call('ZRANGEBYSCORE', key, '(' .. whole(now + lease), '+inf', 'WITHSCORES')
  for i = 1, #late, 2 do
    local length = tonumber(late[i]:match(':(%d+)$'))
    if not length then
      redis.call('ZREM', key, late[i])
    elseif tonumber(late[i + 1]) > now + length then
      redis.call('ZADD', key, whole(now + length), late[i])
    end
  end
  return redis.call('ZCARD', key)
end

local values, costs, breaks = {}, {}, {}
local admitted, violated = 1, 0
for i, key in ipairs(KEYS) do
  local kind, scale, capacity = ARGV[4 * i - 3], tonumber(ARGV[4 * i - 2]), tonumber(ARGV[4 * i - 1])
  local by_character = kind == 'c' or kind == 'd'
  costs[i] = math.ceil((by_character and characters or 1) * scale)
  if kind == 'f' then
    values[i] = held(key)
  elseif kind == 'd' then
    values[i] = spent_today(key)
  else
    values[i] = debt(key, capacity)
  end
  if values[i] + costs[i] > capacity then
    breaks[i] = true
    violated = violated + 2 ^ (i - 1)
    if ARGV[4 * i] == '1' then admitted = 0 end
  end
end

if admitted == 1 then
  for i, key in ipairs(KEYS) do
    local kind = ARGV[4 * i - 3]
    if not breaks[i] and costs[i] > 0 then
      values[i] = values[i] + costs[i]
      if kind == 'f' then
        redis.call('ZADD', key, whole(now + lease), member)
        local ttl = math.ceil(lease / 1000) + 1
        if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ttl) end
      elseif kind == 'd' then
        -- An hour past midnight, in case the clock goes back.
        redis.call('SET', key, today .. ':' .. whole(values[i]), 'PX', math.ceil((DAY - now % DAY) / 1000) + 3600000)
      else
        owe(key, values[i])
      end
    end
  end
end

return {admitted, violated, now, unpack(values)}
