-- A lock for readers and writers: a hash with its mode and a counter per holder, and for each entry of a reader a key of its
-- own that expires. One script for all four operations.
-- KEYS: lock, prefix of the readers' keys, channel. ARGV: operation, lease in ms, holder.
--@ rw rw:timeout rw:channel | read 35000 r1
--@ rw rw:timeout rw:channel | read 35000 r2
--@ rw rw:timeout rw:channel | write 35000 w1
--@ rw rw:timeout rw:channel | write 35000 r1
--@ rw rw:timeout rw:channel | leave-read 35000 r1
--@ rw rw:timeout rw:channel | leave-read 35000 r2
--@ rw rw:timeout rw:channel | leave-write 35000 w1
--@ rw rw:timeout rw:channel | nonsense 35000 w1
local lock, prefix, channel = KEYS[1], KEYS[2], KEYS[3]
local operation, lease, holder = ARGV[1], ARGV[2], ARGV[3]
local mode = redis.call('hget', lock, 'mode')

local function reader_key(n)
    return prefix .. ':' .. holder .. ':' .. n
end

local function taken()
    return redis.call('pttl', lock) > 0 and 'taken' or 'for ever'
end

local function longest_lease()
    local most = -3
    for _, field in ipairs(redis.call('hkeys', lock)) do
        local count = tonumber(redis.call('hget', lock, field))
        if type(count) == 'number' then
            for i = count, 1, -1 do
                most = math.max(redis.call('pttl', prefix .. ':' .. field .. ':' .. i), most)
            end
        end
    end
    return most
end

local operations = {}

operations.read = function()
    if mode == false then
        redis.call('hset', lock, 'mode', 'read', holder, 1)
        redis.call('set', reader_key(1), 1, 'px', lease)
        redis.call('pexpire', lock, lease)
        return nil
    end
    if mode == 'read' or redis.call('hexists', lock, holder .. ':write') == 1 then
        local n = redis.call('hincrby', lock, holder, 1)
        redis.call('set', reader_key(n), 1, 'px', lease)
        redis.call('pexpire', lock, math.max(redis.call('pttl', lock), tonumber(lease)))
        return nil
    end
    return taken()
end

operations.write = function()
    if mode == false then
        redis.call('hset', lock, 'mode', 'write', holder .. ':write', 1)
        redis.call('pexpire', lock, lease)
        return nil
    end
    if mode == 'write' and redis.call('hexists', lock, holder .. ':write') == 1 then
        redis.call('hincrby', lock, holder .. ':write', 1)
        redis.call('pexpire', lock, redis.call('pttl', lock) + tonumber(lease))
        return nil
    end
    return taken()
end

operations['leave-read'] = function()
    if mode == false then
        redis.call('publish', channel, 'free')
        return 1
    end
    if redis.call('hexists', lock, holder) == 0 then
        return nil
    end
    local n = redis.call('hincrby', lock, holder, -1)
    if n == 0 then
        redis.call('hdel', lock, holder)
    end
    redis.call('del', reader_key(n + 1))
    if redis.call('hlen', lock) > 1 then
        local remaining = longest_lease()
        if remaining > 0 then
            redis.call('pexpire', lock, remaining)
            return 0
        end
        if mode == 'write' then
            return 0
        end
    end
    redis.call('del', lock)
    redis.call('publish', channel, 'free')
    return 1
end

operations['leave-write'] = function()
    if mode == 'write' then
        local field = holder .. ':write'
        if redis.call('hexists', lock, field) == 0 then
            return nil
        end
        if redis.call('hincrby', lock, field, -1) > 0 then
            redis.call('pexpire', lock, lease)
            return 0
        end
        redis.call('hdel', lock, field)
        if redis.call('hlen', lock) == 1 then
            redis.call('del', lock)
            redis.call('publish', channel, 'free')
        else
            redis.call('hset', lock, 'mode', 'read')
        end
        return 1
    end
    return nil
end

local run = operations[operation]
if not run then
    return redis.error_reply('BADOP no operation ' .. operation)
end
return run()
