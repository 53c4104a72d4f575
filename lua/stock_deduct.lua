-- stock_deduct: takes units from a pre-deducted stock and names the one caller that must refill it
--
-- The database row keeps the whole stock. Segments of it are moved here and sold from memory:
--   1. This script answers a segment number and its units to exactly one caller, and again after refill_ms if nobody
--      has added that segment by then.
--   2. That caller, in one database transaction, takes the units off the row and inserts (item, segment, units) with
--      (item, segment) unique. If the row exists already, a predecessor crashed: its units count, nothing is taken.
--   3. It calls stock_refill with the segment and these units, then marks the inserted row as added.
-- A crash anywhere loses and doubles nothing: step 2 happens once by the unique key, step 3 once by the number.
--
-- KEYS:   1 stock       hash: left (units to sell), segment (number of the last one added), refill_end (ms since 1970,
--                       server clock: until then a caller is refilling), last (1: the database has no more)
-- ARGV:   1 units       how many to take, 1 or more
--         2 low         ask for a refill when fewer than this are left after the call
--         3 segment     units of one segment, 1 or more
--         4 refill_ms   how long the named caller may take to refill
-- Reply:  array of integers {outcome, left, refill, refill_units, wait_ms}
--         outcome 1 taken; 0 not enough just now, nothing taken: try again; -1 sold out, nothing taken
--         refill > 0: this caller must add segment number `refill`, of refill_units; 0: nothing to do
--         wait_ms > 0: another caller is refilling, for at most that long
-- Holds:  left is never negative; all of the units are taken or none; one caller at a time is told to refill.
-- Cures:  stock that is negative for a moment; a lock deleted by who never took it; a segment lost between database
--         and counter; polling for the lock. To give units back: HINCRBY stock left n, once per cancelled order.
-- Leaves: when the hash itself is lost, what was sold of it stands only in the orders. It shows in step 2 as a row
--         already marked as added: don't add it again, set left and segment by HSET from the database.
-- Example: EVALSHA <sha1> 1 stock:coupon:9 1 2000 10000 5000

local function whole(text, least)
  local n = text and text:find('^%d+$') and tonumber(text)
  return n and n >= least and n <= 9007199254740991 and n
end

local stock = KEYS[1]
local units, low, segment, refill_ms = whole(ARGV[1], 1), whole(ARGV[2], 0), whole(ARGV[3], 1), whole(ARGV[4], 1)
if #KEYS ~= 1 or #ARGV ~= 4 then
  return redis.error_reply('ERR stock_deduct: pass one key, the stock, and ARGV = units, low, segment, refill_ms')
end
if not (units and low and segment and refill_ms) then
  return redis.error_reply('ERR stock_deduct: units, segment and refill_ms must be whole numbers from 1, low from 0, e.g. 1 2000 10000 5000')
end

local fields = redis.call('HMGET', stock, 'left', 'segment', 'refill_end', 'last')
local left, added = whole(fields[1] or '0', 0), whole(fields[2] or '0', 0)
if not (left and added) then
  return redis.error_reply('ERR stock_deduct: left and segment of the stock must be whole numbers from 0; set them right with HSET')
end

local outcome = 0
if left >= units then
  left = redis.call('HINCRBY', stock, 'left', string.format('%.0f', -units))
  outcome = 1
end

if fields[4] == '1' then
  return {outcome == 1 and 1 or -1, left, 0, 0, 0}
end
if outcome == 1 and left >= low then
  return {outcome, left, 0, 0, 0}
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local refill_end = tonumber(fields[3] or 0) or 0
if refill_end > now_ms then
  return {outcome, left, 0, 0, refill_end - now_ms}
end

redis.call('HSET', stock, 'refill_end', string.format('%.0f', now_ms + refill_ms))
local missing = outcome == 0 and units - left or 0
return {outcome, left, added + 1, math.max(segment, missing), 0}
