-- Reliable fetch: moves a job from the first queue that is neither paused nor empty into the private list of a process; or
-- returns all jobs of a dead process to their queues. KEYS: private list, set of paused queues, queues.
-- ARGV: fetch or recover.
--@ private:p1 paused queue:default queue:low | fetch
--@ private:p2 paused queue:low queue:default | fetch
--@ private:p1 paused queue:default | recover
--@ private:p2 paused queue:low | recover
if ARGV[1] == 'recover' then
    local count = 0
    while true do
        local job = redis.call('lmove', KEYS[1], KEYS[3], 'LEFT', 'RIGHT')
        if not job then
            return count
        end
        count = count + 1
    end
end
for i = 3, #KEYS do
    if redis.call('sismember', KEYS[2], KEYS[i]) == 0 then
        local job = redis.call('rpoplpush', KEYS[i], KEYS[1])
        if job then
            return {KEYS[i], job}
        end
    end
end
return false
