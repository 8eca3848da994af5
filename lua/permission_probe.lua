-- permission_probe: try every command that a store needs, and leave nothing behind.
--
-- Redis does not roll back: a script whose user may run its first write but not its
-- second is left half done. So a store runs this script before all others. Its
-- partition has a name that no caller can use. It tries the commands of the other
-- scripts first, then the commands that the store sends without a script. It goes on
-- after one that is rejected, so that all missing rights are found at once. Where DEL or
-- ZREM is rejected it writes nothing, and asks the server for the rights of the others.
--
-- KEYS[1] list      entries of the probe's partition
-- KEYS[2] zset      active partitions of the shard
-- KEYS[3] hash      the probe's sequences
-- KEYS[4] hash      the shard's ledger
-- KEYS[5] list      the shard's dead letters
-- KEYS[6] string    result of the probe's idempotent produce
-- ARGV[1] string    partition name, the member of KEYS[2]
-- RETURNS {now, 0}                     the user may run every command
-- RETURNS {now, n, command, error...}  n commands failed, each with its error; now is 0 where the user may not run TIME
--
-- USES time, open_probe
local q, ready, m, ledger, dead, seen = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local partition = ARGV[1]
local result, try, can_delete = open_probe()
try('DEL', q, m, seen) -- what cannot be deleted again must not be written
try('ZREM', ready, partition)
local clean = can_delete()
try('RPUSH', q, 'a', 'b', 'c')
try('LLEN', q)
try('LINDEX', q, 0)
try('LRANGE', q, 0, -1)
try('LPOP', q, 1)
try('LTRIM', q, 1, -1)
try('HSET', m, 'head', 1)
try('HINCRBY', m, 'tail', 1)
try('HEXISTS', m, 'to')
try('HGET', m, 'from')
try('HMGET', m, 'head', 'tail')
try('HDEL', m, 'from')
try('HDEL', ledger, '')
try('LTRIM', dead, 0, -1)
try('LREM', dead, 1, '')
try('ZADD', ready, 1, partition)
try('ZSCORE', ready, partition)
try('ZMSCORE', ready, partition)
try('ZCARD', ready)
try('GET', seen)
try('SET', seen, '', 'PX', 1000)

try('HGETALL', m)
try('HSETNX', m, 'format', 1)
try('PEXPIRE', m, 1000)
try('ZCOUNT', ready, 0, 1)
try('ZRANGE', ready, 0, 0)
try('SCAN', '0', 'COUNT', 1)

if clean then
  redis.pcall('DEL', q, m, seen)
  redis.pcall('ZREM', ready, partition)
end
return result
