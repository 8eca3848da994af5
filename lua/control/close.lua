-- close: let publish store nothing in a shard for some time, or let it again.
--
-- The first write is HDEL, which a full store does not reject: a full store is why
-- namespaces are deleted.
--
-- KEYS[1] hash      the shard's ledger, whose field closed is when it opens, ms
-- ARGV[1] ms        how long; 0 = it opens now; -1 = for ever if it is closed already: if it is not, a namespace
--                   of that name was made again
-- RETURNS {now}
--
-- USES whole, int, time
local ledger, wait = KEYS[1], whole(ARGV[1], -1)
if not wait then
  return redis.error_reply('ERR close: bad arguments')
end
local now = time()
if wait == -1 then
  if redis.call('HEXISTS', ledger, 'closed') == 0 then
    return { now }
  end
  wait = 3153600000000 -- 100 years
end
redis.call('HDEL', ledger, 'closed')
if wait > 0 then
  redis.call('HSET', ledger, 'closed', int(now + wait))
end
return { now }
