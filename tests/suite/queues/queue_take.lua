-- Takes the next job for a worker: first moves due jobs out of the delays, then takes from the list or the priorities,
-- subject to a rate limiter. Returns {job as pairs, id, ms until the limiter allows a job, next delayed timestamp}.
-- KEYS: wait, active, prioritized, events, stalled, limiter, delayed, paused, meta, marker.
-- ARGV: prefix, now in ms, packed {token, lock ms, limiter {max, duration}}.
--@ q:wait q:active q:prio q:events q:stalled q:limiter q:delayed q:paused q:meta q:marker | q: 1000100 "\x82\xa5token\xa2t1\xaclockDuration\xcd\x88\xb8"
--@ q:wait q:active q:prio q:events q:stalled q:limiter q:delayed q:paused q:meta q:marker | q: 1009000 "\x82\xa5token\xa2t1\xaclockDuration\xcd\x88\xb8"
--@ q:wait q:active q:prio q:events q:stalled q:limiter q:delayed q:paused q:meta q:marker | q: 1000200 "\x83\xa5token\xa10\xaclockDuration\xcd\x88\xb8\xa7limiter\x82\xa3max\x02\xa8duration\xcd\xea\x60"
local rcall = redis.call
local wait, active, prioritized, events, stalled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local limiter, delayed, paused, meta, marker = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local prefix, now = ARGV[1], tonumber(ARGV[2])
local opts = cmsgpack.unpack(ARGV[3])

local function next_sequence()
    return '1-' .. rcall('INCR', prefix .. 'seq')
end

-- Jobs that are due, at most 1000 at a time.
local function promote()
    local due = rcall('ZRANGEBYSCORE', delayed, 0, (now + 1) * 0x1000 - 1, 'LIMIT', 0, 1000)
    if #due == 0 then
        return
    end
    rcall('ZREM', delayed, unpack(due))
    for _, id in ipairs(due) do
        local priority = tonumber(rcall('HGET', prefix .. id, 'priority')) or 0
        if priority == 0 then
            rcall('LPUSH', wait, id)
        else
            rcall('ZADD', prioritized, priority * 0x100000000, id)
        end
        rcall('XADD', events, next_sequence(), 'event', 'waiting', 'jobId', id, 'prev', 'delayed')
        rcall('HSET', prefix .. id, 'delay', 0)
    end
    rcall('ZADD', marker, 0, '0')
end

local function limited_for(options)
    if not options then
        return 0
    end
    local used = tonumber(rcall('GET', limiter) or 0)
    if used >= tonumber(options['max']) then
        local ttl = rcall('PTTL', limiter)
        if ttl == 0 then
            rcall('DEL', limiter)
        end
        if ttl > 0 then
            return math.ceil(ttl / 100000)
        end
    end
    return 0
end

local function prepare(id)
    local key = prefix .. id
    if opts['token'] ~= '0' then
        rcall('SET', key .. ':lock', opts['token'], 'PX', opts['lockDuration'])
    end
    local options = opts['limiter']
    if options then
        local used = tonumber(rcall('INCR', limiter))
        if used == 1 then
            rcall('PEXPIRE', limiter, options['duration'])
        end
    end
    rcall('XADD', events, next_sequence(), 'event', 'active', 'jobId', id, 'prev', 'waiting')
    rcall('HSET', key, 'processedOn', now)
    rcall('HINCRBY', key, 'attemptsMade', 1)
    return {rcall('HGETALL', key), id, 0, 0}
end

local function next_delayed()
    local first = rcall('ZRANGE', delayed, 0, 0, 'WITHSCORES')
    if #first > 0 then
        return tonumber(first[2]) / 0x1000
    end
    return 0
end

promote()
local expires = limited_for(opts['limiter'])
if expires > 0 then
    return {0, 0, expires, 0}
end
if rcall('HEXISTS', meta, 'paused') == 1 then
    return {0, 0, 0, 0}
end
local id = rcall('RPOPLPUSH', wait, active)
if id then
    if string.sub(id, 1, 2) == '0:' then
        rcall('LREM', active, 1, id)
        id = nil
    end
else
    local taken = rcall('ZPOPMIN', prioritized)
    id = taken[1]
    if id then
        rcall('LPUSH', active, id)
    else
        rcall('DEL', prefix .. 'pc')
    end
end
if id then
    return prepare(id)
end
return {0, 0, 0, next_delayed()}
