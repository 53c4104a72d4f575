-- Finds jobs whose worker has died: jobs that were marked in the last round and no longer hold a lock go back to the list, or
-- fail if that has happened too often. Then marks all active jobs. Returns {failed, put back}.
-- KEYS: stalled, wait, active, failed, check, meta, events. ARGV: maximum of returns, prefix, now in ms, ms between checks.
--@ q:stalled q:wait q:active q:failed q:check q:meta q:events | 1 q: 1100000 0
--@ q:stalled q:wait q:active q:failed q:check q:meta q:events | 1 q: 1200000 35000
local rcall = redis.call
local stalled, wait, active, failed, check = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local most, prefix, now = tonumber(ARGV[1]), ARGV[2], ARGV[3]
if rcall('EXISTS', check) == 1 then
    return {{}, {}}
end
if tonumber(ARGV[4]) > 0 then
    rcall('SET', check, now, 'PX', ARGV[4])
end

local function batches(n, size)
    local i = 0
    return function()
        local from = i * size + 1
        i = i + 1
        if from <= n then
            return from, math.min(from + size - 1, n)
        end
    end
end

local suspects = rcall('SMEMBERS', stalled)
table.sort(suspects)
local lost, back = {}, {}
if #suspects > 0 then
    rcall('DEL', stalled)
    for _, id in ipairs(suspects) do
        if rcall('EXISTS', prefix .. id .. ':lock') == 0 and rcall('LREM', active, 1, id) > 0 then
            local count = rcall('HINCRBY', prefix .. id, 'stalledCounter', 1)
            if count > most then
                rcall('ZADD', failed, now, id)
                rcall('HMSET', prefix .. id, 'failedReason', 'job stalled more than allowable limit', 'finishedOn', now)
                table.insert(lost, id)
            else
                rcall('RPUSH', wait, id)
                table.insert(back, id)
            end
        end
    end
end
local now_active = rcall('LRANGE', active, 0, -1)
for from, to in batches(#now_active, 2) do
    rcall('SADD', stalled, unpack(now_active, from, to))
end
return {lost, back}
