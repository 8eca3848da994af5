-- check_shard: refuse the call, before anything is written, where a key of the shard has
-- another type. Returns nil and an error then, else the totals of open_ledger. The first
-- write is an HDEL that removes nothing: it needs no memory, so the call runs when the
-- store is full.
local function check_shard(ledger, lease, attempts, queues, delay, tombstones)
  local totals, refused = open_ledger(ledger)
  if not totals then
    return nil, refused
  end
  redis.call('ZCARD', lease)
  redis.call('ZCARD', queues)
  redis.call('ZCARD', delay)
  redis.call('HLEN', tombstones)
  redis.call('HDEL', attempts, '')
  return totals
end
