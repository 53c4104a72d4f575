-- gate_acquire: takes one place of a gate, or says that all are taken
--
-- KEYS:   1 gate      list of lease ends (ms since 1970, server clock), oldest grant first
-- ARGV:   1 limit     places of the gate, 1 or more
--         2 lease_ms  optional: how long a place is safe from being taken over; 300000 when absent
-- Reply:  integer: the place that this call got, or would have needed.
--         reply <= limit: granted. reply > limit: refused, nothing changed.
-- Holds:  never more than `limit` unlapsed leases, whatever the number of callers. A place given back in time is
--         free at once. A refusal writes nothing. A lapsed lease is taken over only when the gate is full, so a
--         job that overruns an uncrowded gate keeps its place.
-- Cures:  the 60th grant (60) and a refusal (61) differ: `reply <= limit` is a grant, exactly. Each grant has a lease
--         of its own: no grant prolongs an older one, and a quiet gate doesn't start again at 0 after one lease.
-- Leaves: a release names no holder, so nothing can tell a lost job from a long one: as long as `limit` grants or
--         more fall into one lease time, a lost callback costs its place. Cured by lease_gate_acquire.
--         Callers that give up at `reply >= limit` never give the last place back, as before: let them compare with >.
-- Moving: a counter left by the older script is taken over, with the jobs that it counts, at the first call. The
--         older script answers WRONGTYPE from then on: move all callers of a gate together.
-- Example: EVALSHA <sha1> 1 gate:devices 60

local DEFAULT_LEASE_MS = 300000
-- The list outlives its newest lease by this factor, so that overrunning jobs of a quiet gate stay counted.
local KEPT_LEASES = 12

local function whole(text, least)
  local n = text and text:find('^%d+$') and tonumber(text)
  return n and n >= least and n <= 9007199254740991 and n
end

local gate = KEYS[1]
local limit = whole(ARGV[1], 1)
local lease_ms = ARGV[2] == nil and DEFAULT_LEASE_MS or whole(ARGV[2], 1)
if #KEYS ~= 1 or not limit then
  return redis.error_reply('ERR gate_acquire: pass one key, the gate, and ARGV[1] = limit, a whole number from 1, e.g. 60')
end
if not lease_ms or lease_ms > 315360000000 then
  return redis.error_reply('ERR gate_acquire: ARGV[2] = lease_ms must be a whole number from 1 (ms, at most ten years), e.g. 300000')
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local lease_end = string.format('%.0f', now_ms + lease_ms)

-- Turns the older script's counter into that many leases that start now. More than `limit` would only say "full".
local function adopt_counter()
  local jobs = whole(redis.call('GET', gate), 0)
  if not jobs then
    return nil
  end
  jobs = math.min(jobs, limit)
  redis.call('DEL', gate)
  for _ = 1, jobs do
    redis.call('RPUSH', gate, lease_end)
  end
  if jobs > 0 then
    redis.call('PEXPIRE', gate, string.format('%.0f', lease_ms * KEPT_LEASES))
  end
  return jobs
end

local held = redis.pcall('LLEN', gate)
if type(held) == 'table' then
  held = redis.call('TYPE', gate).ok == 'string' and adopt_counter()
  if not held then
    return redis.error_reply('WRONGTYPE gate_acquire: the gate key holds something else; use another key, or DEL it')
  end
end

while held >= limit do
  if tonumber(redis.call('LINDEX', gate, 0)) > now_ms then
    return held + 1
  end
  redis.call('LPOP', gate)
  held = held - 1
end

redis.call('RPUSH', gate, lease_end)
redis.call('PEXPIRE', gate, string.format('%.0f', lease_ms * KEPT_LEASES))
return held + 1
