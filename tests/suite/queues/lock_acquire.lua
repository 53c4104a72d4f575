-- A reentrant lock in a hash: one field, the owner, that counts how often it has entered. Answers nil when it is taken, or for
-- how many 10 s it will be held by another.
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
