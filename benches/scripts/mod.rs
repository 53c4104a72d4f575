//! The measured scripts: two as users send them, then scripts that stress one thing each, with one key and one
//! argument.
#![allow(dead_code, reason = "each bench takes what it needs")]

/// The gate as its users send it.
pub(crate) const GATE: &str = "local count = redis.call('get',KEYS[1]);\
    if not count or tonumber(count) < tonumber(ARGV[1]) then \
    count=redis.call('incr',KEYS[1]);redis.call('EXPIRE', KEYS[1], 300);end;return tonumber(count)";

/// A flash sale that queues the order, as its users send it, without their comments. It declares no keys.
pub(crate) const SECKILL: &str = r#"local voucherId = ARGV[1]
local userId = ARGV[2]
local orderId = ARGV[3]
local stockKey = 'seckill:stock:' .. voucherId
local orderKey = 'seckill:order:' .. voucherId
local n = tonumber(redis.call('get', stockKey))
if (n == nil or n <= 0) then
return 1
end
if (redis.call('sismember', orderKey, userId) == 1) then
return 2
end
redis.call("incrby", stockKey, -1)
redis.call("sadd", orderKey, userId)
redis.call('xadd', 'stream.orders', '*', 'userId', userId, 'voucherId', voucherId, 'id', orderId)
return 0
"#;

/// Three fixed windows, charged all together or not at all. KEYS: their counters; ARGV: limit and length in ms of each.
pub(crate) const WINDOWS: &str = "local counts = redis.call('MGET', unpack(KEYS)) \
    for i = 1, 3 do if counts[i] and tonumber(counts[i]) >= tonumber(ARGV[2 * i - 1]) then \
    return {0, i, redis.call('PTTL', KEYS[i])} end end \
    for i = 1, 3 do if redis.call('INCR', KEYS[i]) == 1 then redis.call('PEXPIRE', KEYS[i], ARGV[2 * i]) end end \
    return {1, 0, 0}";

/// Holds ARGV[2] units for the order ARGV[1] for ARGV[3] ms, after returning the units of expired holds. KEYS: a hash
/// of the units left and sold, a sorted set of orders by the ends of their holds, a hash of their units. A new stock
/// has a million units.
pub(crate) const STOCK_RESERVE: &str = "local time = redis.call('TIME') \
    local now_ms = time[1] * 1000 + math.floor(time[2] / 1000) \
    for _, order in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now_ms, 'LIMIT', 0, 100)) do \
    redis.call('HINCRBY', KEYS[1], 'left', redis.call('HGET', KEYS[3], order)) \
    redis.call('HDEL', KEYS[3], order) redis.call('ZREM', KEYS[2], order) end \
    if redis.call('HEXISTS', KEYS[3], ARGV[1]) == 1 then return 1 end \
    redis.call('HSETNX', KEYS[1], 'left', 1000000) \
    if tonumber(redis.call('HGET', KEYS[1], 'left')) < tonumber(ARGV[2]) then return 0 end \
    redis.call('HINCRBY', KEYS[1], 'left', -ARGV[2]) redis.call('HSET', KEYS[3], ARGV[1], ARGV[2]) \
    redis.call('ZADD', KEYS[2], now_ms + ARGV[3], ARGV[1]) return 1";

/// Ends the hold of ARGV[1], whose units go to the field ARGV[2]: left, or sold.
pub(crate) const STOCK_SETTLE: &str = "local units = redis.call('HGET', KEYS[3], ARGV[1]) \
    if not units then return 0 end \
    redis.call('HDEL', KEYS[3], ARGV[1]) redis.call('ZREM', KEYS[2], ARGV[1]) \
    redis.call('HINCRBY', KEYS[1], ARGV[2], units) return 1";

/// Adds one to KEYS[2], once for each request KEYS[1], whose reply is kept for ARGV[1] ms.
pub(crate) const INCR_ONCE: &str = "local reply = redis.call('GET', KEYS[1]) if reply then return tonumber(reply) end \
    reply = redis.call('INCR', KEYS[2]) redis.call('SET', KEYS[1], reply, 'PX', ARGV[1]) return reply";

/// A lock whose waiting clients are notified of its release: a hash with the number of entries by owner. KEYS[1]: the
/// lock; ARGV: owner and lease in ms. Returns nil once the caller has the lock, else how long it is still held.
pub(crate) const TOLD_LOCK: &str = "if redis.call('EXISTS', KEYS[1]) == 0 \
    or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then \
    redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return nil end \
    return redis.call('PTTL', KEYS[1])";

/// Releases that lock and publishes the release on its channel KEYS[2].
pub(crate) const TOLD_UNLOCK: &str = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end \
    if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 0 end \
    redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[2], '0') return 1";

/// Does nothing.
pub(crate) const EMPTY: &str = "";

/// Fifty commands.
pub(crate) const SETS: &str = "for i = 1, 50 do redis.call('SET', KEYS[1], ARGV[1]) end return 50";

/// Reads, changes and writes the document [`an_order`].
pub(crate) const JSON: &str = "local order = cjson.decode(ARGV[1]) order.state = 'paid' \
    order.lines[3].amount = order.lines[3].amount + 1 \
    return cjson.encode(order)";

/// Lua alone: fills a table of 500 and walks it four times.
pub(crate) const LOOP: &str = "local sum, list = 0, {} for i = 1, 500 do list[i] = i * 7 % 11 end \
    for round = 1, 4 do for i = 1, 500 do sum = sum + list[i] * round end end return sum";

/// A JSON document of 2 KB.
pub(crate) fn an_order() -> String {
    let line = |i: usize| {
        format!(r#"{{"sku":"article-{i:05}","name":"something to be bought","amount":{i},"price":{i}.25,"tax":true}}"#)
    };
    let lines: Vec<String> = (0..21).map(line).collect();
    format!(r#"{{"id":"order-0000017","state":"open","customer":null,"lines":[{}]}}"#, lines.join(","))
}
