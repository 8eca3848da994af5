-- permission_probe: try every command that the scripts of PHP's queues need, and leave nothing behind.
--
-- Redis does not roll back: a script whose user may run its first write but not its
-- second is left half done, and here that is a job of PHP's. So a store runs this script
-- before all others, on a queue that no caller can name. PHP's keys and ours have prefixes of
-- their own, and the user needs rights to both. It goes on after a command that is rejected, so
-- that all missing rights are found at once. Where DEL is rejected it writes nothing, and asks
-- the server for the rights of the others.
--
-- KEYS[1] list      ready payloads of the probe's queue, PHP's
-- KEYS[2] zset      its delayed payloads, PHP's
-- KEYS[3] zset      its reserved payloads, PHP's
-- KEYS[4] list      its notifications, PHP's
-- KEYS[5] hash      its account
-- KEYS[6] zset      its leases
-- KEYS[7] hash      its leases
-- KEYS[8] zset      its dead letters
-- KEYS[9] hash      its dead letters
-- KEYS[10] string   what a lane's last claim handed out
-- KEYS[11] string   result of a keyed publish
-- RETURNS {now, 0}                     the user may run every command
-- RETURNS {now, n, command, error...}  n commands failed, each with its error; now is 0 where the user may not run TIME
--
-- USES time, open_probe
local list, zset, hash, out = KEYS[1], KEYS[2], KEYS[5], KEYS[10]
local result, try, can_delete = open_probe()
try('DEL', list, zset, KEYS[3], KEYS[4]) -- what cannot be deleted again must not be written
try('DEL', hash, KEYS[6], KEYS[7], KEYS[8], KEYS[9], out, KEYS[11])
local clean = can_delete()
try('RPUSH', list, '1', '2')
try('LPUSH', list, '0')
try('LLEN', list)
try('LINDEX', list, 0)
try('LPOP', list)
try('LTRIM', list, 1, -1)
try('LRANGE', list, 0, 0)
try('PEXPIRE', list, 1000)
try('ZADD', zset, 1, '1')
try('ZCARD', zset)
try('ZSCORE', zset, '1')
try('ZRANGE', zset, 0, 0)
try('ZRANGEBYSCORE', zset, 0, 1)
try('ZREM', zset, '1')
try('ZREMRANGEBYRANK', zset, 0, 0)
try('HSET', hash, '1', 'x')
try('HGET', hash, '1')
try('HMGET', hash, '1')
try('HLEN', hash)
try('HINCRBY', hash, 'n', 1)
try('HDEL', hash, '1')
try('SET', out, '', 'PX', 1000)
try('GET', out)
if clean then
  redis.pcall('DEL', list, zset, hash, out)
end
return result
