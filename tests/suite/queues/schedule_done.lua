-- A job has run: one like it may be scheduled again. Answers whether it was held.
-- KEYS: unique prefix. ARGV: what the digest is made of.
--@ unique | Mail 1 a/b
--@ unique | Mail 2.5 nil
--@ unique | Scan
--@ unique | Lost
local held = redis.call('unlink', KEYS[1] .. ':' .. redis.sha1hex(table.concat(ARGV, '\0')))
return held == 1
