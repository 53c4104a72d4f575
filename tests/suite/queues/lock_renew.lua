-- The watchdog of reentrant locks: prolongs those of the given locks that the owner still holds. Returns 1 or 0 for each.
-- KEYS: locks. ARGV: lease in ms, then the owner of each.
--@ lock:{a} lock:{b} | 35000 conn-1:7 conn-2:1
--@ lock:{b} | 55000 conn-1:7
local result = {}
for i = 1, #KEYS, 1 do
    if redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1 then
        redis.call('pexpire', KEYS[i], ARGV[1])
        table.insert(result, 1)
    else
        table.insert(result, 0)
    end
end
return result
