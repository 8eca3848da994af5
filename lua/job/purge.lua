-- purge: delete jobs of a queue, the ready ones oldest first, or those in every state.
--
-- A call looks at a bounded number of jobs. The caller repeats it while there may be more.
-- Where jobs have callers' ids it reads them, about 1 MiB a call.
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
-- ARGV[2] string    ready, or all: once no job is ready, the delayed, leased and dead ones, in no order
-- ARGV[3] int       jobs to look at, 1 to 1,000
-- RETURNS {now, looked at, deleted}  looked at: as many as ARGV[3] says while there may be more; tombstones count, too
--
-- USES whole, int, time, foreign, in_pieces, read_all, wake, open_ledger, close_ledger, check_shard, caller_id, drop_id, drop_errors, skip_tombstones, forget, usable, remove
local name, state, count = ARGV[1], ARGV[2], whole(ARGV[3], 1)
if #KEYS ~= 10 and #KEYS ~= 15 or not count or count > 1000 or state ~= 'ready' and state ~= 'all' then
  return redis.error_reply('ERR purge: bad arguments')
end
local ledger, lease, attempts, queues, delay, tombstones = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local r, j, d, u = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local now = time()
if not usable(r, j, d) then
  return redis.error_reply('WRONGTYPE a key of the queue has another type')
end
local totals, rejected = check_shard(ledger, lease, attempts, queues, delay, tombstones, 10)
if not totals then
  return rejected
end
local ids = redis.pcall('HLEN', u)
local named = not foreign(ids) and ids > 0
local looked, missing, bytes = 0, 0, 0

-- id_of reads the caller's id of a job.
local function id_of(seq)
  local record = named and redis.call('HGET', j, seq)
  bytes = bytes + (record and #record or 0)
  return record and caller_id(record)
end

while looked < count and bytes < 1048576 do
  local seqs = redis.call('LPOP', r, named and math.min(10, count - looked) or count)
  if not seqs then
    break
  end
  local members = {}
  for x, seq in ipairs(seqs) do
    members[x] = seq .. ' ' .. name
    drop_id(u, id_of(seq), seq)
  end
  local gone = redis.call('HDEL', j, unpack(seqs))
  if redis.call('HDEL', attempts, unpack(members)) > 0 then
    drop_errors(u, seqs)
  end
  looked, missing = looked + #seqs, missing + #seqs - gone
  totals.deleted = totals.deleted + gone
  for _, seq in ipairs(seqs) do
    if totals.ends then
      totals.ends.ended(name, seq, 'deleted')
    end
  end
end
if state == 'all' and redis.call('LLEN', r) == 0 then
  -- These are delayed, leased or dead, or have lost their reference.
  local k = { lease = lease, attempts = attempts, delay = delay, tombstones = tombstones, r = r, j = j, d = d, u = u }
  while looked < count and bytes < 1048576 do
    local rest = redis.call('HRANDFIELD', j, named and math.min(10, count - looked) or count - looked)
    if #rest == 0 then
      break
    end
    for _, seq in ipairs(rest) do
      remove(k, totals, name, seq, id_of(seq))
      if totals.ends then
        totals.ends.ended(name, seq, 'deleted')
      end
      totals.deleted = totals.deleted + 1
    end
    looked = looked + #rest
  end
end
if bytes >= 1048576 then
  looked = count
end
totals.lost = totals.lost + skip_tombstones(tombstones, r, name, missing)
totals.lost = totals.lost + forget(queues, tombstones, r, j, name)
close_ledger(ledger, totals)
return { now, looked, totals.deleted }
