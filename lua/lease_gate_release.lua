-- lease_gate_release: gives the place of one named holder back
--
-- KEYS:   1 gate    the sorted set that lease_gate_acquire keeps
-- ARGV:   1 holder  as given to lease_gate_acquire
-- Reply:  array of integers {outcome, holders}
--         {1, holders}  released in time
--         {0, holders}  nothing to release: the lease had ended (the job may have run beside somebody else's), was
--                       given back before, or was never granted
-- Holds:  frees this holder's place and no other; a second release changes nothing.
-- Cures:  a late release is noticed and frees nobody else's place.
-- Example: EVALSHA <sha1> 1 gate:devices job-17

local gate, holder = KEYS[1], ARGV[1]
if #KEYS ~= 1 or #ARGV ~= 1 or holder == '' then
  return redis.error_reply('ERR lease_gate_release: pass one key, the gate, and ARGV[1] = holder')
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)

-- Lapsed leases go first: giving one of them back is late, not in time.
redis.call('ZREMRANGEBYSCORE', gate, '-inf', string.format('%.0f', now_ms))
local released = redis.call('ZREM', gate, holder)
return {released, redis.call('ZCARD', gate)}
