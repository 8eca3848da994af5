-- drop_kept: forget acked jobs that a queue kept, once their time is over, a thousand a call.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      queues that keep acked jobs, by when the first of them is over, ms
-- KEYS[3] zset      acked jobs of the queue, by when they are over, ms
-- KEYS[4] hash      the same jobs, and behind ! how each ended
-- ARGV[1] string    name of the queue
-- ARGV[2] int       1 = also those whose time is not over, else 0
-- RETURNS {now, left}  how many are to be forgotten still
--
-- USES int, time, foreign, in_pieces, drop_kept
if #KEYS ~= 4 or #ARGV ~= 2 then
  return redis.error_reply('ERR drop_kept: bad arguments')
end
local now = time()
redis.call('ZCARD', KEYS[2])
redis.call('HLEN', KEYS[4])
return { now, drop_kept(KEYS[1], KEYS[2], { name = ARGV[1], until_ms = KEYS[3], kept = KEYS[4] }, ARGV[2] == '1' and 1e15 or now, 0) }
