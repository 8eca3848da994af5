-- ledger: the totals of a shard, all at one moment; writes nothing.
--
-- published = acked + expired + deleted + lost + dead + ready + prepared + delayed + leased.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      leases by deadline, ms
-- KEYS[3] zset      delayed jobs by due time, ms; prepared ones below 0
-- RETURNS {now, published, acked, expired, deleted, lost, dead, died, respawned, delayed, leased, idempotency keys, prepared, acked jobs that are kept}
--
-- USES time, read_keys
local result = { time() }
local names = { 'published', 'acked', 'expired', 'deleted', 'lost', 'dead', 'died', 'respawned', 'keys', 'kept' }
local v = redis.call('HMGET', KEYS[1], unpack(names))
for i = 1, 8 do
  result[i + 1] = tonumber(v[i] or 0) or 0
end
result[10], result[11] = redis.call('ZCARD', KEYS[3]), redis.call('ZCARD', KEYS[2])
local _, kept = read_keys(v[9], result[1])
result[12] = kept
result[13] = redis.call('ZCOUNT', KEYS[3], '-inf', '(0')
result[10] = result[10] - result[13]
result[14] = tonumber(v[10] or 0) or 0
return result
