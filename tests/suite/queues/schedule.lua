-- Moves jobs that are due from a schedule to their queues. A job is JSON that names its queue; invalid JSON goes to the dead
-- set. Returns how many moved, by queue.
-- KEYS: schedule, dead, known queues. ARGV: now in s, maximum number of jobs.
--@ schedule dead queues | 1500.5 10
--@ schedule dead queues | 1600 1
local moved, order = {}, {}
for _ = 1, tonumber(ARGV[2]) do
    local due = redis.call('zrange', KEYS[1], '-inf', ARGV[1], 'byscore', 'limit', 0, 1)
    if not due[1] then
        break
    end
    redis.call('zrem', KEYS[1], due[1])
    local ok, job = pcall(cjson.decode, due[1])
    if not ok or type(job) ~= 'table' or not job.queue then
        redis.call('zadd', KEYS[2], ARGV[1], due[1])
    else
        job.enqueued_at = tonumber(ARGV[1])
        local entry = {job.jid, job.class, job.enqueued_at, job.args and #job.args or 0}
        redis.call('sadd', KEYS[3], job.queue)
        redis.call('lpush', 'queue:' .. job.queue, cjson.encode(entry))
        if not moved[job.queue] then
            moved[job.queue] = 0
            table.insert(order, job.queue)
        end
        moved[job.queue] = moved[job.queue] + 1
    end
end
local reply = {}
for i, queue in ipairs(order) do
    reply[i] = queue .. '=' .. moved[queue]
end
return reply
