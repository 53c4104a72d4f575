-- Pauses or resumes a queue: the waiting list changes its name. KEYS: from, to, meta, prioritized, marker. ARGV: paused
-- or resumed.
--@ q:wait q:paused q:meta q:prio q:marker | paused
--@ q:paused q:wait q:meta q:prio q:marker | resumed
--@ q:paused q:wait q:meta q:prio q:marker | resumed
if redis.call('EXISTS', KEYS[1]) == 1 then
    redis.call('RENAME', KEYS[1], KEYS[2])
end
if ARGV[1] == 'paused' then
    redis.call('HSET', KEYS[3], 'paused', 1)
    redis.call('DEL', KEYS[5])
else
    redis.call('HDEL', KEYS[3], 'paused')
    local waiting = redis.call('LLEN', KEYS[2]) + redis.call('ZCARD', KEYS[4])
    if waiting > 0 then
        redis.call('ZADD', KEYS[5], 0, '0')
    end
    return waiting
end
