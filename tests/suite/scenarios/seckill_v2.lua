---参数: 券, 用户, 订单
local voucher = ARGV[1]
local user = ARGV[2]
local order = ARGV[3]
local stock = 'seckill:stock:' .. voucher
local buyers = 'seckill:order:' .. voucher
--- 还有库存吗
local left = tonumber(redis.call('get', stock))
if (left == nil or left <= 0) then
return 1
end
--- 同一个人只能买一次
if (redis.call('sismember', buyers, user) == 1) then
return 2
end
redis.call("incrby", stock, -1)
redis.call("sadd", buyers, user)
redis.call('xadd', 'stream.orders', '*', 'userId', user, 'voucherId', voucher, 'id', order)
return 0
