-- lease_gate_renew: prolongs the lease of a holder that still has its place
--
-- KEYS:   1 gate      the sorted set that lease_gate_acquire keeps
-- ARGV:   1 holder    as given to lease_gate_acquire
--         2 lease_ms  the lease now ends this many ms from now
-- Reply:  array of integers {outcome, holders}
--         {1, holders}  renewed
--         {0, holders}  the lease had ended, or was never granted: stop the work, or acquire again
-- Holds:  never takes a place, so the gate can't fill beyond its limit by renewing.
-- Cures:  a long job keeps its place by a heartbeat instead of by a lease as long as the longest job.
-- Example: EVALSHA <sha1> 1 gate:devices job-17 30000

local function whole(text, least)
  local n = text and text:find('^%d+$') and tonumber(text)
  return n and n >= least and n <= 9007199254740991 and n
end

local gate, holder, lease_ms = KEYS[1], ARGV[1], whole(ARGV[2], 1)
if #KEYS ~= 1 or #ARGV ~= 2 or holder == '' then
  return redis.error_reply('ERR lease_gate_renew: pass one key, the gate, and ARGV = holder, lease_ms')
end
if not lease_ms or lease_ms > 315360000000 then
  return redis.error_reply('ERR lease_gate_renew: ARGV[2] = lease_ms must be a whole number from 1 (ms, at most ten years), e.g. 30000')
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

redis.call('ZREMRANGEBYSCORE', gate, '-inf', string.format('%.0f', now_ms))
if not redis.call('ZSCORE', gate, holder) then
  return {0, redis.call('ZCARD', gate)}
end

redis.call('ZADD', gate, string.format('%.0f', now_ms + lease_ms), holder)
local last_end = redis.call('ZRANGE', gate, -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIREAT', gate, string.format('%.0f', tonumber(last_end)))
return {1, redis.call('ZCARD', gate)}
