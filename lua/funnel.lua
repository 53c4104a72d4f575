-- funnel: lets a quota pass if the leaky bucket of this key has room for it
--
-- KEYS:   1 funnel    hash, fields as the users' programs name them: capacity, leftQuota (room left at leakingTs),
--                     leakingTs (ms since 1970, server clock), leakingRate (per second)
-- ARGV:   1 capacity  room of the empty bucket, above 0
--         2 rate      what leaks out per second, above 0: a number (0.5), or units/seconds (1/1800: one in 1800 s)
--         3 quota     optional: room that this call needs, above 0 and at most the capacity; 1 when absent
-- Reply:  array of integers {outcome, left, wait_ms}
--         {1, left, 0}        passed; `left` whole units of room remain
--         {0, left, wait_ms}  refused, nothing changed; there is room after wait_ms if nobody else comes
-- Holds:  over any time of t seconds at most capacity + rate * t passes. The hash lives until the bucket is empty again,
--         plus 10 s; a missing hash and an empty bucket are the same.
-- Cures:  one lock for all users; clients' clocks; expiry set apart from the fields; a delete without owner.
-- Moving: a hash that the users' programs left is taken over as it stands.
-- Example: EVALSHA <sha1> 1 funnel:sms:13800000000 1 1/1800

-- Far above the rounding of doubles here, far below any quota in use.
local EPSILON = 1e-9

local function positive(text)
  local n = text and text:find('^%d+%.?%d*$') and tonumber(text)
  return n and n > 0 and n <= 9007199254740991 and n
end

local funnel = KEYS[1]
local capacity, quota = positive(ARGV[1]), positive(ARGV[3] or '1')
local units, seconds = (ARGV[2] or ''):match('^([^/]+)/([^/]+)$')
units, seconds = positive(units or ARGV[2]), positive(seconds or '1')
if #KEYS ~= 1 or #ARGV < 2 or #ARGV > 3 then
  return redis.error_reply('ERR funnel: pass one key, the funnel, and ARGV = capacity, rate and optionally quota')
end
if not (capacity and units and seconds and quota) then
  return redis.error_reply('ERR funnel: capacity and quota must be numbers above 0, rate too or units/seconds, e.g. 1 1/1800 1')
end
if quota > capacity then
  return redis.error_reply('ERR funnel: a quota above the capacity never passes; ask for less, or give a larger capacity')
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

local fields = redis.call('HMGET', funnel, 'leftQuota', 'leakingTs')
local left, since_ms = tonumber(fields[1] or capacity), tonumber(fields[2] or now_ms)
if not (left and since_ms) then
  return redis.error_reply('ERR funnel: leftQuota and leakingTs must be numbers; DEL the key, or set them right with HSET')
end
-- The clock may have stepped back, or a client's clock that wrote the field may run ahead.
local leaked = math.max(0, now_ms - since_ms) * units / (seconds * 1000)
left = math.min(capacity, left + leaked)

if left + EPSILON < quota then
  local wait_ms = math.ceil((quota - left) * seconds * 1000 / units - EPSILON)
  return {0, math.floor(math.max(0, left) + EPSILON), math.max(1, wait_ms)}
end

left = math.max(0, left - quota)
redis.call('HSET', funnel,
  'capacity', ARGV[1],
  'leftQuota', string.format('%.17g', left),
  'leakingTs', string.format('%.0f', now_ms),
  'leakingRate', string.format('%.17g', units / seconds))
local empty_ms = math.ceil((capacity - left) * seconds * 1000 / units)
redis.call('PEXPIRE', funnel, string.format('%.0f', math.min(empty_ms, 315360000000) + 10000))
return {1, math.floor(left + EPSILON), 0}
