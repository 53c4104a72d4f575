-- Leaves a reentrant lock once; the last exit deletes it and wakes waiters. Returns nil to non-owners, 0 while it is still
-- held, 1 when it is free. A repeated release gets the reply that is remembered under the request's name.
-- KEYS: lock, channel, remembered reply. ARGV: message, lease in ms, owner, ms to remember.
--@ lock:{a} chan:{a} done:{a}:1 | 0 35000 conn-1:7 60000
--@ lock:{a} chan:{a} done:{a}:2 | 0 35000 conn-1:7 60000
--@ lock:{a} chan:{a} done:{a}:3 | 0 35000 conn-2:1 60000
--@ lock:{b} chan:{b} done:{b}:1 | 0 35000 conn-2:1 60000
local known = redis.call('get', KEYS[3])
if known ~= false then
    return tonumber(known)
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
    return nil
end
local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if counter > 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
    redis.call('set', KEYS[3], 0, 'px', ARGV[4])
    return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[4])
return 1
