-- lock_acquire: takes a lock for one owner and gives it a fencing token
--
-- KEYS:   1 lock      string: the owner, gone when the lease ends; what SET lock owner NX PX makes
--         2 fence     string: the last token given; never expires. On a cluster both share a {tag}
-- ARGV:   1 owner     who asks; unique for each attempt to work, e.g. a UUID
--         2 lease_ms  how long the lock is held unless extended
-- Reply:  array of integers {outcome, token, ms}
--         {1, token, lease_ms}  locked; tokens of one lock only ever grow
--         {0, 0, wait_ms}       another owner has it for wait_ms more, unless extended; -1: it has no lease at all
-- Holds:  one owner at a time; a token is given to one owner; asking again as the owner renews the lease and answers
--         the same token.
-- Cures:  an owner that overslept its lease is recognised: whoever stores the work refuses a token lower than one it
--         has seen. lock_release, lock_extend and the users' unlock script work on this lock.
-- Example: EVALSHA <sha1> 2 {lock:order:7} {lock:order:7}:fence worker-1 30000

local function whole(text, least)
  local n = text and text:find('^%d+$') and tonumber(text)
  return n and n >= least and n <= 9007199254740991 and n
end

local lock, fence, owner, lease_ms = KEYS[1], KEYS[2], ARGV[1], whole(ARGV[2], 1)
if #KEYS ~= 2 or #ARGV ~= 2 or owner == '' then
  return redis.error_reply('ERR lock_acquire: pass two keys, lock and fence, and ARGV = owner, lease_ms')
end
if not lease_ms or lease_ms > 315360000000 then
  return redis.error_reply('ERR lock_acquire: ARGV[2] = lease_ms must be a whole number from 1 (ms, at most ten years), e.g. 30000')
end

local holder = redis.call('GET', lock)
if holder and holder ~= owner then
  return {0, 0, redis.call('PTTL', lock)}
end

-- The fence moves at grants only, so for the owner it still shows the owner's token.
local token = holder and tonumber(redis.call('GET', fence)) or redis.call('INCR', fence)
redis.call('SET', lock, owner, 'PX', string.format('%.0f', lease_ms))
return {1, token, lease_ms}
