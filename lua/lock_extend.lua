-- lock_extend: starts the lease of a lock anew, for its owner only
--
-- KEYS:   1 lock      string that holds the owner
-- ARGV:   1 owner     as given when the lock was taken
--         2 lease_ms  the lock now ends this many ms from now
-- Reply:  integer: 1 extended; 0 not the owner: the lease had ended, stop the work
-- Holds:  never takes a lock, never touches another owner's.
-- Cures:  GET then PEXPIRE from the client may prolong the lock of whoever took it in between.
-- Example: EVALSHA <sha1> 1 lock:order:7 worker-1 30000

local lock, owner = KEYS[1], ARGV[1]
local lease_ms = ARGV[2] and ARGV[2]:find('^%d+$') and tonumber(ARGV[2])
if #KEYS ~= 1 or #ARGV ~= 2 or owner == '' then
  return redis.error_reply('ERR lock_extend: pass one key, the lock, and ARGV = owner, lease_ms')
end
if not lease_ms or lease_ms < 1 or lease_ms > 315360000000 then
  return redis.error_reply('ERR lock_extend: ARGV[2] = lease_ms must be a whole number from 1 (ms, at most ten years), e.g. 30000')
end

if redis.call('GET', lock) ~= owner then
  return 0
end
return redis.call('PEXPIRE', lock, string.format('%.0f', lease_ms))
