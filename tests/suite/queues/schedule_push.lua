-- Puts a job on the schedule unless an equal one is there: a digest of its class and arguments is held for a while.
-- KEYS: schedule, unique prefix. ARGV: at in s, job as JSON, ms for which it is unique.
--@ schedule unique | 1400.25 "{\"class\":\"Mail\",\"args\":[1,\"a/b\"],\"jid\":\"j1\",\"queue\":\"default\"}" 65000
--@ schedule unique | 1450 "{\"class\":\"Mail\",\"args\":[2.5,null],\"jid\":\"j2\",\"queue\":\"low\"}" 65000
--@ schedule unique | 1550 "{\"class\":\"Scan\",\"args\":[],\"jid\":\"j3\",\"queue\":\"default\"}" 65000
--@ schedule unique | 1500 "{\"class\":\"Lost\",\"args\":[]}" 65000
--@ schedule unique | 1300 "not json" 65000
local ok, job = pcall(cjson.decode, ARGV[2])
local digest
if ok then
    local parts = {job.class}
    for i = 1, #job.args do
        parts[#parts + 1] = tostring(job.args[i] == cjson.null and 'nil' or job.args[i])
    end
    digest = redis.sha1hex(table.concat(parts, '\0'))
else
    digest = redis.sha1hex(ARGV[2])
end
local key = KEYS[2] .. ':' .. digest
if not redis.call('set', key, ok and job.jid or '?', 'nx', 'px', ARGV[3]) then
    return redis.call('get', key)
end
redis.call('zadd', KEYS[1], ARGV[1], ARGV[2])
return redis.status_reply('SCHEDULED')
