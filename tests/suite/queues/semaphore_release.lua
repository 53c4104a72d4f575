-- Gives a permit back. KEYS: counter, lent, channel. ARGV: permit, now in ms.
--@ sem sem:lent sem:channel | p1#1 1300
--@ sem sem:lent sem:channel | p2#1 1300
--@ sem sem:lent sem:channel | p3#2 1300
local score = redis.call('zscore', KEYS[2], ARGV[1])
if not score or tonumber(score) < tonumber(ARGV[2]) then
    return 0
end
redis.call('zrem', KEYS[2], ARGV[1])
local value = redis.call('incr', KEYS[1])
redis.call('publish', KEYS[3], value)
return {1, value, score}
