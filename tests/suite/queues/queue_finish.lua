-- A worker has finished a job, with success or not: checks its lock, moves the job to the finished ones, of which a limited number
-- is kept, and notifies a parent; or schedules a retry after a delay. Returns 0, or a negative error code.
-- KEYS: active, completed, failed, events, delayed, wait, meta, stalled. ARGV: prefix, job, token, now in ms, outcome, result,
-- packed {keep = {count, age}, backoff}.
--@ q:active q:completed q:failed q:events q:delayed q:wait q:meta q:stalled | q: a t1 1000300 completed "{\"ok\":true}" "\x81\xa4keep\x81\xa5count\x02"
--@ q:active q:completed q:failed q:events q:delayed q:wait q:meta q:stalled | q: b t1 1009300 failed "boom" "\x82\xa4keep\x81\xa5count\xff\xa7backoff\xcd\x03\xe8"
--@ q:active q:completed q:failed q:events q:delayed q:wait q:meta q:stalled | q: c t1 1000400 completed "null" "\x81\xa4keep\x82\xa5count\x03\xa3age\x0a"
--@ q:active q:completed q:failed q:events q:delayed q:wait q:meta q:stalled | q: d 0 1000500 completed "1.50" "\x81\xa4keep\x81\xa5count\x00"
--@ q:active q:completed q:failed q:events q:delayed q:wait q:meta q:stalled | q: e t1 1090000 failed "late" "\x81\xa4keep\x81\xa5count\x01"
--@ q:active q:completed q:failed q:events q:delayed q:wait q:meta q:stalled | q: e t1 1000600 failed "again" "\x82\xa4keep\x81\xa5count\xff\xa7backoff\xcd\x03\xe8"
--@ q:active q:completed q:failed q:events q:delayed q:wait q:meta q:stalled | q: a 0 1000700 completed "[1,{\"x\":2}]" "\x81\xa4keep\x81\xa5count\x02"
local rcall = redis.call
local active, completed, failed, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local delayed, wait, stalled = KEYS[5], KEYS[6], KEYS[8]
local prefix, id, token, now, outcome, result = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local opts = cmsgpack.unpack(ARGV[7])
local key = prefix .. id

local function remove_lock()
    if token == '0' then
        return 0
    end
    local holder = rcall('GET', key .. ':lock')
    if holder == token then
        rcall('DEL', key .. ':lock')
        rcall('SREM', stalled, id)
        return 0
    end
    if holder then
        return -6
    end
    if rcall('LREM', active, 0, id) > 0 then
        rcall('LPUSH', active, id)
        return -2
    end
    return -3
end

local function drop(set, keep)
    if keep['age'] then
        local old = rcall('ZRANGEBYSCORE', set, '-inf', now - keep['age'] * 1000)
        for _, job in ipairs(old) do
            rcall('DEL', prefix .. job, prefix .. job .. ':logs', prefix .. job .. ':dp')
        end
        rcall('ZREMRANGEBYSCORE', set, '-inf', now - keep['age'] * 1000)
    end
    if keep['count'] and keep['count'] > 0 then
        local over = rcall('ZREVRANGE', set, keep['count'], -1)
        for _, job in ipairs(over) do
            rcall('DEL', prefix .. job, prefix .. job .. ':logs', prefix .. job .. ':dp')
        end
        rcall('ZREMRANGEBYRANK', set, 0, -(keep['count'] + 1))
    end
end

if rcall('EXISTS', key) ~= 1 then
    return -1
end
local problem = remove_lock()
if problem < 0 then
    return problem
end
if rcall('LREM', active, -1, id) < 1 then
    return -3
end

local job = rcall('HMGET', key, 'attempts', 'attemptsMade', 'parentKey')
if outcome == 'failed' and opts['backoff'] and tonumber(job[2] or 0) < tonumber(job[1] or 1) then
    local due = now + opts['backoff'] * 2 ^ (tonumber(job[2]) - 1)
    rcall('ZADD', delayed, due * 0x1000, id)
    rcall('HSET', key, 'delay', due - now, 'failedReason', result)
    return {0, due}
end

local keep = opts['keep']
local target = outcome == 'completed' and completed or failed
if keep['count'] ~= 0 then
    rcall('ZADD', target, now, id)
    rcall('HSET', key, outcome == 'completed' and 'returnvalue' or 'failedReason', result, 'finishedOn', now)
    drop(target, keep)
else
    rcall('DEL', key, key .. ':logs')
end
if job[3] then
    local dependencies = job[3] .. ':dp'
    if rcall('SREM', dependencies, key) == 1 then
        rcall('HSET', job[3] .. ':processed', key, result)
        if rcall('SCARD', dependencies) == 0 and rcall('EXISTS', job[3]) == 1 then
            rcall('LPUSH', wait, job[3])
        end
    end
end
local ok, decoded = pcall(cjson.decode, result)
rcall('XADD', events, '1-' .. rcall('INCR', prefix .. 'seq'), 'event', outcome, 'jobId', id,
    'value', ok and type(decoded) or 'not JSON')
return 0
