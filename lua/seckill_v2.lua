-- seckill_v2: sells one unit to a buyer who has none yet, and queues the order
--
-- KEYS:   1 stock    string: units left, e.g. seckill:stock:9
--         2 buyers   set of users who bought, e.g. seckill:order:9
--         3 orders   stream of orders to work, e.g. stream.orders. On a cluster all share a {tag}
-- ARGV:   1 voucher  what is sold
--         2 user     who buys
--         3 order    the order's ID
-- Reply:  integer: 0 sold and queued; 1 no stock, or no such stock; 2 this user already bought
-- Holds:  units left + buyers is constant; never negative; one unit per user; one stream entry {userId, voucherId, id}
--         per unit sold; 1 and 2 change nothing.
-- Cures:  the users' script builds its keys from ARGV; here all are declared, so a cluster can route it and a server
--         that insists on declared keys runs it. ARGV, replies and the stream's fields are the same.
-- Moving: the same stock, buyers and orders; declare their keys, the arguments stay.
-- Example: EVALSHA <sha1> 3 seckill:stock:9 seckill:order:9 stream.orders 9 user-1 order-1

local stock, buyers, orders = KEYS[1], KEYS[2], KEYS[3]
local voucher, user, order = ARGV[1], ARGV[2], ARGV[3]
if #KEYS ~= 3 or #ARGV ~= 3 or voucher == '' or user == '' or order == '' then
  return redis.error_reply('ERR seckill_v2: pass three keys, stock, buyers and orders, and ARGV = voucher, user, order')
end

local left = redis.call('GET', stock)
local units = tonumber(left)
if left and (not units or units > 9007199254740991 or string.format('%.0f', units) ~= left) then
  return redis.error_reply('ERR seckill_v2: the stock must be a whole number; SET it to the units left')
end
if not left or units <= 0 then
  return 1
end
if redis.call('SISMEMBER', buyers, user) == 1 then
  return 2
end

-- The queue first: if it can't take the order (a key of another type), nothing has been sold.
redis.call('XADD', orders, '*', 'userId', user, 'voucherId', voucher, 'id', order)
redis.call('DECR', stock)
redis.call('SADD', buyers, user)
return 0
