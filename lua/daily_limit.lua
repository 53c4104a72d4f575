-- daily_limit: counts a send against the limit of its key, if it is still within it
--
-- KEYS:   1 counter  string: what was sent, e.g. DAY_SEND_COUNT20261120:account
-- ARGV:   1 ttl      seconds that the counter lives after its first send, 1 or more
--         2 limit    how many may be sent, 0 or more
--         3 count    optional: how many this call sends, all or none; 1 when absent
-- Reply:  string: '0' allowed and counted; '1' refused, nothing changed
-- Holds:  the counter never passes the limit and always has an expiry; it counts exactly what was allowed.
-- Cures:  refused sends no longer count, so a limit that is raised during the day works at once. Values passed as KEYS
--         are refused at once, not first on a cluster.
-- Moving: same keys, arguments and replies as the users' script, which may run beside it on the same counter.
-- Example: EVALSHA <sha1> 1 DAY_SEND_COUNT20261120:account 86400 1000

local function whole(text, least)
  local n = text and text:find('^%d+$') and tonumber(text)
  return n and n >= least and n <= 9007199254740991 and n
end

local counter = KEYS[1]
local ttl, limit, count = whole(ARGV[1], 1), whole(ARGV[2], 0), whole(ARGV[3] or '1', 1)
if #KEYS ~= 1 or #ARGV < 2 or #ARGV > 3 then
  return redis.error_reply('ERR daily_limit: pass one key, the counter, and ARGV = ttl, limit and optionally count (not as KEYS)')
end
if not (ttl and limit and count) or ttl > 315360000 then
  return redis.error_reply('ERR daily_limit: ttl must be whole seconds from 1 (at most ten years), limit a whole number from 0, count from 1, e.g. 86400 1000')
end

local sent = whole(redis.call('GET', counter) or '0', 0)
if not sent then
  return redis.error_reply('ERR daily_limit: the counter must be a whole number from 0; DEL it, or use another key')
end
if sent + count > limit then
  return '1'
end

redis.call('INCRBY', counter, string.format('%.0f', count))
if redis.call('TTL', counter) < 0 then
  redis.call('EXPIRE', counter, string.format('%.0f', ttl))
end
return '0'
