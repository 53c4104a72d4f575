-- A semaphore whose permits expire: a counter of free permits, and a sorted set of those lent, by deadline. Overdue permits
-- come back first. Returns the permit, or `:` and the nearest deadline.
-- KEYS: counter, lent, channel. ARGV: permits, now in ms, lease in ms, a name for the permit.
--@ sem sem:lent sem:channel | 1 1000 500 p1
--@ sem sem:lent sem:channel | 1 1100 500 p2
--@ sem sem:lent sem:channel | 2 1200 500 p3
--@ sem sem:lent sem:channel | 1 1700 500 p4
--@ sem sem:lent sem:channel | 1 9000 300 p5
--@ sem sem:lent sem:channel | 1 20000 100 p6
--@ sem sem:lent sem:channel | 1 30000 100 p1
local overdue = redis.call('zrangebyscore', KEYS[2], 0, ARGV[2], 'limit', 0, 100)
if #overdue > 0 then
    redis.call('zrem', KEYS[2], unpack(overdue))
    local free = redis.call('incrby', KEYS[1], #overdue)
    if tonumber(free) > 0 then
        redis.call('publish', KEYS[3], free)
    end
end
local free = redis.call('get', KEYS[1])
if free == false then
    redis.call('set', KEYS[1], 3)
    free = 3
end
if tonumber(free) >= tonumber(ARGV[1]) then
    redis.call('decrby', KEYS[1], ARGV[1])
    if tonumber(ARGV[3]) > 0 then
        for i = 1, tonumber(ARGV[1]) do
            redis.call('zadd', KEYS[2], ARGV[2] + ARGV[3], ARGV[4] .. '#' .. i)
        end
    end
    return ARGV[4]
end
local nearest = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
if nearest[1] then
    return ':' .. tostring(nearest[2])
end
return nil
