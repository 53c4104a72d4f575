-- The single-instance half of a quorum lock over several resources: all or none. Returns how many keys it touched.
-- KEYS: resources. ARGV: acquire, extend or release; value of the owner; lease in ms.
--@ red:1 red:2 red:3 | acquire v1 35000
--@ red:2 | acquire v2 35000
--@ red:1 red:2 red:3 | extend v1 55000
--@ red:1 red:2 red:3 | extend v2 55000
--@ red:1 red:2 red:3 | release v1 0
--@ red:2 | release v2 0
--@ red:2 red:3 | acquire v2 35000
if ARGV[1] == 'acquire' then
    for _, key in ipairs(KEYS) do
        if redis.call('exists', key) == 1 then
            return 0
        end
    end
    for _, key in ipairs(KEYS) do
        redis.call('set', key, ARGV[2], 'PX', ARGV[3])
    end
    return #KEYS
elseif ARGV[1] == 'extend' then
    for _, key in ipairs(KEYS) do
        if redis.call('get', key) ~= ARGV[2] then
            return 0
        end
    end
    for _, key in ipairs(KEYS) do
        redis.call('pexpire', key, ARGV[3])
    end
    return #KEYS
end
local count = 0
for _, key in ipairs(KEYS) do
    if redis.pcall('get', key) == ARGV[2] then
        redis.pcall('del', key)
        count = count + 1
    end
end
return count
