-- A reentrant lock in a hash: one field, the owner, counts its entries. Returns nil when the lock is acquired, or else
-- for how many units of 10 s another owner will hold it.
-- KEYS: lock. ARGV: lease in ms, owner.
--@ lock:{a} | 35000 conn-1:7
--@ lock:{a} | 35000 conn-1:7
--@ lock:{a} | 55000 conn-2:1
--@ lock:{b} | 55000 conn-2:1
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
    redis.call('hincrby', KEYS[1], ARGV[2], 1)
    redis.call('pexpire', KEYS[1], ARGV[1])
    return nil
end
return math.floor(redis.call('pttl', KEYS[1]) / 10000)
