-- A fixed number of permits in each interval: grants are in a sorted set as packed binary, the remaining count in a string.
-- Returns nil for a grant, otherwise the ms to wait.
-- KEYS: settings, left, granted. ARGV: permits, now in ms, eight random bytes.
--@ rl rl:left rl:granted | 1 100000 aaaaaaaa
--@ rl rl:left rl:granted | 2 100200 bbbbbbbb
--@ rl rl:left rl:granted | 3 100900 cccccccc
--@ rl rl:left rl:granted | 1 101500 dddddddd
--@ rl rl:left rl:granted | 9 101500 eeeeeeee
local settings = redis.call('hmget', KEYS[1], 'rate', 'interval')
local rate, interval = tonumber(settings[1] or 5), tonumber(settings[2] or 1000)
assert(rate and interval, 'RateLimiter is not initialized')
local wanted, now = tonumber(ARGV[1]), tonumber(ARGV[2])
if wanted > rate then
    error('requested permits exceed the rate')
end
redis.call('hsetnx', KEYS[1], 'rate', rate)
redis.call('hsetnx', KEYS[1], 'interval', interval)

local left = redis.call('get', KEYS[2])
if left == false then
    left = rate
    redis.call('set', KEYS[2], left)
end
left = tonumber(left)

local released = 0
for _, packed in ipairs(redis.call('zrangebyscore', KEYS[3], 0, now - interval)) do
    local _, permits = struct.unpack('Bc0I', packed)
    released = released + permits
end
if released > 0 then
    redis.call('zremrangebyscore', KEYS[3], 0, now - interval)
    if left + released > rate then
        left = rate
        for _, packed in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
            local _, permits = struct.unpack('Bc0I', packed)
            left = left - permits
        end
    else
        left = left + released
    end
    redis.call('set', KEYS[2], left)
end

local wait = nil
if left < wanted then
    local first = redis.call('zrange', KEYS[3], 0, 0, 'withscores')
    wait = 3 + interval - (now - tonumber(first[2]))
else
    redis.call('zadd', KEYS[3], now, struct.pack('Bc0I', string.len(ARGV[3]), ARGV[3], wanted))
    redis.call('decrby', KEYS[2], wanted)
end
local ttl = redis.call('pttl', KEYS[1])
if ttl > 0 then
    redis.call('pexpire', KEYS[2], ttl)
    redis.call('pexpire', KEYS[3], ttl)
end
return wait
