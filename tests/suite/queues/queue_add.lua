-- Adds a job to a queue. The job's identity and options come packed, one nested in the other. A job goes to the waiting list,
-- to the sorted set of priorities, or to that of delays; a marker wakes a worker.
-- KEYS: wait, paused, meta, id, delayed, prioritized, completed, events, marker, priority counter.
-- ARGV: packed {prefix, custom id, name, timestamp, parent key or nil, dependencies or nil}, data as JSON, packed options.
--@ q:wait q:paused q:meta q:id q:delayed q:prio q:completed q:events q:marker q:pc | "\x95\xa2q:\xa1a\xa4send\xce\x00\x0f\x42\x40\xc0" "{\"to\":1}" "\x80"
--@ q:wait q:paused q:meta q:id q:delayed q:prio q:completed q:events q:marker q:pc | "\x95\xa2q:\xa1b\xa4mail\xce\x00\x0f\x42\x41\xc0" "{\"to\":[1,2]}" "\x82\xa5delay\xcd\x13\x88\xa8attempts\x03"
--@ q:wait q:paused q:meta q:id q:delayed q:prio q:completed q:events q:marker q:pc | "\x95\xa2q:\xa1c\xa4rush\xce\x00\x0f\x42\x42\xc0" "{}" "\x81\xa8priority\x05"
--@ q:wait q:paused q:meta q:id q:delayed q:prio q:completed q:events q:marker q:pc | "\x95\xa2q:\xa1d\xa4rush\xce\x00\x0f\x42\x43\xc0" "{}" "\x81\xa8priority\x02"
--@ q:wait q:paused q:meta q:id q:delayed q:prio q:completed q:events q:marker q:pc | "\x95\xa2q:\xa1e\xa4last\xce\x00\x0f\x42\x44\xc0" "{}" "\x83\xa4lifo\xc3\xa8attempts\x04\xa7backoff\x82\xa4type\xabexponential\xa5delay\xcd\x03\xe8"
--@ q:wait q:paused q:meta q:id q:delayed q:prio q:completed q:events q:marker q:pc | "\x96\xa2q:\xa0\xa5child\xce\x00\x0f\x42\x45\xa3q:a\xa6q:a:dp" "{\"n\":null}" "\x80"
--@ q:wait q:paused q:meta q:id q:delayed q:prio q:completed q:events q:marker q:pc | "\x96\xa2q:\xa1b\xa5child\xce\x00\x0f\x42\x46\xa3q:a\xa6q:a:dp" "{\"n\":[]}" "\x80"
--@ q:wait q:paused q:meta q:id q:delayed q:prio q:completed q:events q:marker q:pc | "\x95\xa2q:" "{}" "\x80"
local rcall = redis.call
local wait, paused, meta, ids, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prioritized, events, marker, counter = KEYS[6], KEYS[8], KEYS[9], KEYS[10]

local args = cmsgpack.unpack(ARGV[1])
local opts = cmsgpack.unpack(ARGV[3])
local data = ARGV[2]
local prefix, custom_id, name, timestamp = args[1], args[2], args[3], args[4]
local parent_key, dependencies = args[5], args[6]
if parent_key == cjson.null then parent_key = nil end

local function target_list()
    if rcall('HEXISTS', meta, 'paused') == 1 then
        return paused, true
    end
    return wait, false
end

local function add_marker(is_paused, score)
    if not is_paused then
        rcall('ZADD', marker, score, score == 0 and '0' or '1')
    end
end

local function priority_score(priority)
    local n = rcall('INCR', counter)
    return priority * 0x100000000 + n % 0x100000000
end

local max_events = rcall('HGET', meta, 'opts.maxLenEvents')
if not max_events then
    max_events = 10000
    rcall('HSET', meta, 'opts.maxLenEvents', max_events)
end

local function next_event()
    return '1-' .. rcall('INCR', prefix .. 'seq')
end

local counter_value = rcall('INCR', ids)
local id = custom_id
if id == '' then
    id = counter_value
end
local key = prefix .. id
if rcall('EXISTS', key) == 1 then
    if parent_key and dependencies then
        rcall('SADD', dependencies, key)
    end
    rcall('XADD', events, 'MAXLEN', '~', max_events, next_event(), 'event', 'duplicated', 'jobId', id)
    return id .. ''
end

local delay = opts['delay'] or 0
local priority = opts['priority'] or 0
local optional = {}
if parent_key then
    table.insert(optional, 'parentKey')
    table.insert(optional, parent_key)
end
if opts['backoff'] then
    table.insert(optional, 'backoff')
    table.insert(optional, opts['backoff']['type'] .. '/' .. opts['backoff']['delay'])
end
rcall('HSET', key, 'name', name, 'data', data, 'timestamp', timestamp, 'delay', delay, 'priority', priority,
    'attempts', opts['attempts'] or 1, unpack(optional))
rcall('XADD', events, 'MAXLEN', '~', max_events, next_event(), 'event', 'added', 'jobId', id, 'name', name)

if delay > 0 then
    local score = (timestamp + delay) * 0x1000
    rcall('ZADD', delayed, score, id)
    add_marker(false, timestamp + delay)
else
    local list, is_paused = target_list()
    if priority == 0 then
        rcall(opts['lifo'] and 'RPUSH' or 'LPUSH', list, id)
    else
        rcall('ZADD', prioritized, priority_score(priority), id)
    end
    add_marker(is_paused, 0)
end
if dependencies then
    rcall('SADD', dependencies, key)
end
return id .. ''
