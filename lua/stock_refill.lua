-- stock_refill: adds one numbered segment to a pre-deducted stock, once
--
-- KEYS:   1 stock    the hash that stock_deduct keeps
-- ARGV:   1 segment  the number that stock_deduct named; to add stock unasked: HGET stock segment, plus one
--         2 units    what the database gave for this segment: 0 or more, less than asked near the end
--         3 last     optional: 1 the database has no more, so stop asking; 0 or absent: it may have more
-- Reply:  array of integers {outcome, left}
--         {1, left}  added, and the refill is over: the next low stock names a caller again
--         {0, left}  this segment was added before; nothing changed
-- Holds:  segments are added in the order of their numbers, each once, however often and by whomever it is sent.
-- Cures:  a retry after a lost reply, or by the successor of a crashed caller, doubles nothing; see stock_deduct.
-- Example: EVALSHA <sha1> 1 stock:coupon:9 1 10000

local function whole(text, least)
  local n = text and text:find('^%d+$') and tonumber(text)
  return n and n >= least and n <= 9007199254740991 and n
end

local stock = KEYS[1]
local segment, units, last = whole(ARGV[1], 1), whole(ARGV[2], 0), ARGV[3] or '0'
if #KEYS ~= 1 or #ARGV < 2 or #ARGV > 3 then
  return redis.error_reply('ERR stock_refill: pass one key, the stock, and ARGV = segment, units and optionally last')
end
if not (segment and units) or (last ~= '0' and last ~= '1') then
  return redis.error_reply('ERR stock_refill: segment must be a whole number from 1, units from 0, last 0 or 1, e.g. 1 10000 0')
end

local fields = redis.call('HMGET', stock, 'left', 'segment')
local left, added = whole(fields[1] or '0', 0), whole(fields[2] or '0', 0)
if not (left and added) then
  return redis.error_reply('ERR stock_refill: left and segment of the stock must be whole numbers from 0; set them right with HSET')
end
if segment <= added then
  return {0, left}
end
if segment > added + 1 then
  return redis.error_reply(string.format('ERR stock_refill: segment %.0f is ahead of the next one, %.0f; add the ones before it from the database first', segment, added + 1))
end
if left + units > 9007199254740991 then
  return redis.error_reply('ERR stock_refill: the stock would pass 2^53 - 1 units; add a smaller segment')
end

left = redis.call('HINCRBY', stock, 'left', ARGV[2])
redis.call('HSET', stock, 'segment', ARGV[1], 'last', last)
redis.call('HDEL', stock, 'refill_end')
return {1, left}
