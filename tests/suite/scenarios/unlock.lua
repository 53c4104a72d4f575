-- 只有锁的主人才能释放它
if (redis.call('GET', KEYS[1]) == ARGV[1]) then
-- 是主人
return redis.call('DEL', KEYS[1])
end
return 0
