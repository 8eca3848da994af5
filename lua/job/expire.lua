-- expire: drop jobs whose ttl is over, of those that nobody holds and that are not dead.
--
-- promote drops those at the head of a queue and claim those that it meets. This finds
-- those that jobs with a longer ttl hide. It scans the queue's jobs a piece at a time.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      leases by deadline, ms
-- KEYS[3] hash      attempts of jobs that were claimed before
-- KEYS[4] zset      queues that have jobs
-- KEYS[5] zset      delayed jobs by due time, ms
-- KEYS[6] hash      tombstones, by queue
-- KEYS[7] list      ready jobs of the queue
-- KEYS[8] hash      its jobs
-- KEYS[9] zset      its dead jobs by the time of death, ms
-- KEYS[10] hash     its callers' ids
-- ARGV[1] string    name of the queue
-- ARGV[2] string    cursor: 0 at first, then that of the last reply
-- ARGV[3] int       about how many jobs to look at, 1 to 1,000
-- RETURNS {now, cursor, expired}  cursor: '0' after the last piece
--
-- USES whole, int, time, foreign, open_ledger, close_ledger, check_shard, caller_id, drop_id, forget, usable, remove
local name, count = ARGV[1], whole(ARGV[3], 1)
if not count or count > 1000 or not whole(ARGV[2], 0) then
  return redis.error_reply('ERR expire: bad arguments')
end
local now = time()
if not usable(KEYS[7], KEYS[8], KEYS[9]) then
  return redis.error_reply('WRONGTYPE a key of the queue has another type')
end
local k = { lease = KEYS[2], attempts = KEYS[3], delay = KEYS[5], tombstones = KEYS[6], r = KEYS[7], j = KEYS[8], d = KEYS[9], u = KEYS[10] }
local piece = redis.call('HSCAN', k.j, ARGV[2], 'COUNT', int(count))
local found = {}
for x = 1, #piece[2], 2 do
  local ends = tonumber(string.sub(piece[2][x + 1], 1, 13)) or 0
  if ends > 0 and ends <= now then
    found[#found + 1] = x
  end
end
if #found == 0 then
  return { now, piece[1], 0 }
end
local totals, refused = check_shard(KEYS[1], k.lease, k.attempts, KEYS[4], k.delay, k.tombstones)
if not totals then
  return refused
end
local expired = 0
for _, x in ipairs(found) do
  local seq, record = piece[2][x], piece[2][x + 1]
  if not redis.call('ZSCORE', k.lease, seq .. ' ' .. name) and not redis.call('ZSCORE', k.d, seq) then
    remove(k, totals, name, seq, caller_id(record))
    expired = expired + 1
  end
end
totals.expired = totals.expired + expired
totals.lost = totals.lost + forget(KEYS[4], k.tombstones, k.r, k.j, name)
close_ledger(KEYS[1], totals)
return { now, piece[1], expired }
