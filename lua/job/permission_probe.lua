-- permission_probe: try every command that the scripts of jobs need, and leave nothing behind.
--
-- Redis does not roll back: a script whose user may run its first write but not its
-- second is left half done. So a store runs this script before all others. Its queue has
-- a name that no caller can use. It goes on after a command that is rejected, so that all
-- missing rights are found at once. Where DEL is rejected it writes nothing, and asks the
-- server for the rights of the others. The probe writes no key that other calls share.
--
-- KEYS[1] list      ready jobs of the probe's queue
-- KEYS[2] hash      its jobs
-- KEYS[3] zset      its dead jobs
-- KEYS[4] string    result of its idempotent publish
-- ARGV[1] string    channel of the probe's queue
-- ARGV[2] string    the command that wakes: publish, or spublish in a cluster
-- RETURNS {now, 0}                     the user may run every command
-- RETURNS {now, n, command, error...}  n commands failed, each with its error; now is 0 where the user may not run TIME
--
-- USES time, open_probe
local r, j, d, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local result, try, can_delete = open_probe()
try('EXISTS', r)
try('DEL', r, j, d, seen) -- what cannot be deleted again must not be written
local clean = can_delete()
try('RPUSH', r, '1', '2')
try('LPUSH', r, '0')
try('LLEN', r)
try('LRANGE', r, 0, 0)
try('LINDEX', r, 0)
try('LPOS', r, '1')
try('LPOP', r, 1)
try('LTRIM', r, 0, -1)
try('HSET', j, '1', 'x')
try('HGET', j, '1')
try('HMGET', j, '1')
try('HLEN', j)
try('HEXISTS', j, '1')
try('HSCAN', j, '0', 'COUNT', 1)
try('HRANDFIELD', j, 1)
try('HINCRBY', j, 'n', 1)
try('HDEL', j, '1')
try('ZADD', d, 1, '1')
try('ZCARD', d)
try('ZSCORE', d, '1')
try('ZMSCORE', d, '1')
try('ZRANGE', d, 0, 0)
try('ZREM', d, '1')
try('SET', seen, '', 'PX', 1000)
try('GET', seen)
try(ARGV[2], ARGV[1], '')

try('HGETALL', j)
try('HSETNX', j, 'format', 1)
try('PEXPIRE', j, 1000)
try('PTTL', j)
try('ZCOUNT', d, 0, 1)

if clean then
  redis.pcall('DEL', r, j, d, seen)
end
return result
