local counter = KEYS[1]
local seconds = tonumber(ARGV[1])
local most = tonumber(ARGV[2])

local sent = redis.call('INCRBY', counter, 1)

if sent == 1 then
    redis.call('EXPIRE', counter, seconds)
end

if sent > most then
    return '1'
end

return '0';
