-- next_id: gives the next 64-bit ID: seconds since 2023-01-01 in the upper 32 bits, the number within the day below
--
-- KEYS:   1 counters  hash: date (yyyy:MM:dd, UTC) -> IDs given that day, e.g. icr:order
-- ARGV:   none
-- Reply:  string: the ID in decimal. A string, because a Lua number is exact up to 2^53 only, and so are the numbers of
--         many clients' languages.
-- Holds:  no ID is given twice, also when the clock steps back: within one day the lower half never repeats, and another
--         day never has the same seconds. IDs grow with time. At most 2^32 - 1 a day, then an error. Until the year 2091
--         the ID is below 2^63.
-- Cures:  seconds and number come from one server in one step, so clients' clocks don't matter; the counter is a declared
--         key. HGET icr:order 2026:11:20 tells how many were given that day.
-- Leaves: a failover that loses the last increments may repeat IDs of the second in which it happens.
-- Moving: programs that INCR icr:<prefix>:<yyyy:MM:dd> themselves count elsewhere: move all of a prefix together, with a
--         second between the last old ID and the first new one.
-- Example: EVALSHA <sha1> 1 icr:order

local EPOCH = 1672531200 -- 2023-01-01T00:00:00Z

-- The Gregorian date of a day, counted from 1970-01-01, after Howard Hinnant, "chrono-Compatible Low-Level Date
-- Algorithms": years start in March, so that the leap day is the last of its year.
local function date_of(day)
  local shifted = day + 719468 -- days since 0000-03-01
  local era = math.floor(shifted / 146097)
  local day_of_era = shifted - era * 146097
  local year_of_era = math.floor((day_of_era - math.floor(day_of_era / 1460) + math.floor(day_of_era / 36524)
    - math.floor(day_of_era / 146096)) / 365)
  local day_of_year = day_of_era - (365 * year_of_era + math.floor(year_of_era / 4) - math.floor(year_of_era / 100))
  local month_from_march = math.floor((5 * day_of_year + 2) / 153)
  local day_of_month = day_of_year - math.floor((153 * month_from_march + 2) / 5) + 1
  local month = month_from_march < 10 and month_from_march + 3 or month_from_march - 9
  local year = year_of_era + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d:%02d:%02d', year, month, day_of_month)
end

if #KEYS ~= 1 or #ARGV ~= 0 then
  return redis.error_reply('ERR next_id: pass one key, the counters of a prefix, and no ARGV, e.g. EVALSHA <sha1> 1 icr:order')
end

local now = tonumber(redis.call('TIME')[1])
local seconds = now - EPOCH
if seconds < 1 then
  return redis.error_reply("ERR next_id: the server's clock is before 2023; set it right")
end

local number = redis.call('HINCRBY', KEYS[1], date_of(math.floor(now / 86400)), 1)
if number < 1 or number > 4294967295 then
  return redis.error_reply('ERR next_id: all 2^32 - 1 IDs of this day are given; use one more prefix')
end

-- seconds * 2^32 + number, in two decimal parts of which each stays exact: 2^32 = 4294 * 10^6 + 967296.
local low = seconds * 967296 + number
local high = seconds * 4294 + math.floor(low / 1000000)
return string.format('%.0f%06.0f', high, low % 1000000)
