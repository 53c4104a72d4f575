-- lease_gate_acquire: takes a place of a gate for one named holder and a limited time
--
-- KEYS:   1 gate      sorted set: holder -> end of its lease (ms since 1970, server clock)
-- ARGV:   1 holder    who asks; unique for each job, e.g. a UUID or device:job
--         2 limit     places of the gate, 1 or more
--         3 lease_ms  how long the place is held unless renewed
-- Reply:  array of integers {outcome, holders, ms}
--         {1, holders, lease_ms}  granted
--         {2, holders, lease_ms}  renewed: this holder already had its place, whose lease starts anew
--         {0, holders, wait_ms}   refused; the next lease ends in wait_ms unless it is renewed
-- Holds:  a new place is granted only below `limit` unlapsed leases; one holder has one place; a holder keeps its place
--         when the limit is lowered; a refusal grants and prolongs nothing; the key goes with its last lease.
-- Cures:  grant and refusal differ; a lost job costs its place for its own lease only, whatever the traffic; no lapse
--         of the key frees running jobs; a repeated call (lost reply) takes no second place.
-- Example: EVALSHA <sha1> 1 gate:devices job-17 60 30000

local function whole(text, least)
  local n = text and text:find('^%d+$') and tonumber(text)
  return n and n >= least and n <= 9007199254740991 and n
end

local gate, holder = KEYS[1], ARGV[1]
local limit, lease_ms = whole(ARGV[2], 1), whole(ARGV[3], 1)
if #KEYS ~= 1 or #ARGV ~= 3 or holder == '' then
  return redis.error_reply('ERR lease_gate_acquire: pass one key, the gate, and ARGV = holder, limit, lease_ms')
end
if not limit then
  return redis.error_reply('ERR lease_gate_acquire: ARGV[2] = limit must be a whole number from 1, e.g. 60')
end
if not lease_ms or lease_ms > 315360000000 then
  return redis.error_reply('ERR lease_gate_acquire: ARGV[3] = lease_ms must be a whole number from 1 (ms, at most ten years), e.g. 30000')
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

redis.call('ZREMRANGEBYSCORE', gate, '-inf', string.format('%.0f', now_ms))
local holders = redis.call('ZCARD', gate)
local holding = redis.call('ZSCORE', gate, holder)

if not holding and holders >= limit then
  local next_end = redis.call('ZRANGE', gate, 0, 0, 'WITHSCORES')[2]
  return {0, holders, tonumber(next_end) - now_ms}
end

redis.call('ZADD', gate, string.format('%.0f', now_ms + lease_ms), holder)
-- Leases differ in length, so the last to end need not be this one.
local last_end = redis.call('ZRANGE', gate, -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIREAT', gate, string.format('%.0f', tonumber(last_end)))

if holding then
  return {2, holders, lease_ms}
end
return {1, holders + 1, lease_ms}
