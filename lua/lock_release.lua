-- lock_release: removes a lock, for its owner only
--
-- KEYS:   1 lock   string that holds the owner
-- ARGV:   1 owner  as given when the lock was taken
-- Reply:  integer: 1 released; 0 not the owner: the lease had ended, or somebody else has the lock now
-- Holds:  never removes another owner's lock; a second release changes nothing.
-- Cures:  DEL by who never took the lock. Forgetting the owner is an error, not a 0.
-- Moving: same keys, arguments and replies as the users' unlock script.
-- Example: EVALSHA <sha1> 1 lock:order:7 worker-1

local lock, owner = KEYS[1], ARGV[1]
if #KEYS ~= 1 or #ARGV ~= 1 or owner == '' then
  return redis.error_reply('ERR lock_release: pass one key, the lock, and ARGV[1] = owner')
end

if redis.call('GET', lock) ~= owner then
  return 0
end
return redis.call('DEL', lock)
