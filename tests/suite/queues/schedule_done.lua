-- A job has run: an equal one may be scheduled again. Returns whether its digest was held.
-- KEYS: unique prefix. ARGV: parts of the digest.
--@ unique | Mail 1 a/b
--@ unique | Mail 2.5 nil
--@ unique | Scan
--@ unique | Lost
local held = redis.call('unlink', KEYS[1] .. ':' .. redis.sha1hex(table.concat(ARGV, '\0')))
return held == 1
