-- pause: stop the delivery of a partition, or of the whole namespace, in one shard.
--
-- Only claim heeds it: what is leased now is delivered. A second pause replaces who
-- paused it and why, and keeps the time of the first. The first write is HDEL, which a
-- full store does not reject.
--
-- KEYS[1] hash      the shard's ledger
-- ARGV[1] string    name of the partition, which may have no entries; * = all partitions
-- ARGV[2] ms        since when; 0 = now
-- ARGV[3] string    who paused it and why; kept as it is
-- ARGV[4] int       most paused partitions of the shard
-- RETURNS {now, 0}  rejected: one paused partition too many; nothing was written
-- RETURNS {now, 1}  paused
--
-- USES whole, int, time
local ledger, name = KEYS[1], ARGV[1]
local since, max_paused = whole(ARGV[2], 0), whole(ARGV[4], 0)
if not (since and max_paused) or name == '' then
  return redis.error_reply('ERR pause: bad arguments')
end

local now = time()
local field = 'pause:' .. name
local v = redis.call('HMGET', ledger, 'paused', 'pause:*', field)
local count, old = whole(v[1], 0) or 0, v[3]
if not old then
  if name ~= '*' and count - (v[2] and 1 or 0) >= max_paused then
    return { now, 0 }
  end
  count = count + 1
end
local first = old and string.match(old, '^(%d+) ') or int(since > 0 and since or now)
redis.call('HDEL', ledger, field)
redis.call('HSET', ledger, 'paused', count, field, first .. ' ' .. ARGV[3])
return { now, 1 }
