-- seckill_v1: sells one unit to a buyer who has none yet
--
-- KEYS:   1 stock   string: units left, e.g. seckill:stock:9
--         2 buyers  set of users who bought, e.g. seckill:order:9. On a cluster both share a {tag}
-- ARGV:   1 user    who buys
-- Reply:  integer: 0 sold; 1 no stock, or no such stock; 2 this user already bought
-- Holds:  units left + buyers is constant; never negative; one unit per user; 1 and 2 change nothing.
-- Cures:  the users' script builds its keys from ARGV; here all are declared, so a cluster can route it and a server
--         that insists on declared keys runs it. Replies are the same; a repeated call (lost reply) answers 2 after a 0.
-- Moving: the same stock and buyers; declare their keys, and pass the user alone: the voucher stands in the keys.
-- Example: EVALSHA <sha1> 2 seckill:stock:9 seckill:order:9 user-1

local stock, buyers, user = KEYS[1], KEYS[2], ARGV[1]
if #KEYS ~= 2 or #ARGV ~= 1 or user == '' then
  return redis.error_reply('ERR seckill_v1: pass two keys, stock and buyers, and ARGV[1] = user')
end

local left = redis.call('GET', stock)
local units = tonumber(left)
if left and (not units or units > 9007199254740991 or string.format('%.0f', units) ~= left) then
  return redis.error_reply('ERR seckill_v1: the stock must be a whole number; SET it to the units left')
end
if not left or units <= 0 then
  return 1
end
if redis.call('SISMEMBER', buyers, user) == 1 then
  return 2
end

redis.call('DECR', stock)
redis.call('SADD', buyers, user)
return 0
