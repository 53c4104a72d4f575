-- gate_release: gives one place of a gate back
--
-- KEYS:   1 gate  the list that gate_acquire keeps
-- ARGV:   none
-- Reply:  integer: places still taken after this call; nil when none was taken, so that this release came late or twice.
-- Holds:  frees at most one place, the one granted longest ago; never below 0.
-- Cures:  a release too many is told apart (nil) instead of going unnoticed. A late release first uses up the lapsed
--         lease, which is most likely its own, instead of a place in use.
-- Leaves: when that lapsed lease was taken over in the meantime, a late release frees somebody else's place: it names
--         no holder. Cured by lease_gate_release.
-- Moving: on a counter left by the older script it counts down by one, as that script did.
-- Example: EVALSHA <sha1> 1 gate:devices

local gate = KEYS[1]
if #KEYS ~= 1 then
  return redis.error_reply('ERR gate_release: pass one key, the gate, e.g. EVALSHA <sha1> 1 gate:devices')
end

local oldest = redis.pcall('LPOP', gate)
if type(oldest) == 'table' then
  local count = redis.call('GET', gate)
  if tonumber(count) and tonumber(count) > 0 then
    return redis.call('DECR', gate)
  end
  return tonumber(count)
end
if not oldest then
  return nil
end
return redis.call('LLEN', gate)
