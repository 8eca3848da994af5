-- expire: drop jobs whose ttl is over, of those that nobody holds and that are not dead; and, as an audit, make jobs ready
-- again that lost their reference.
--
-- promote drops the expired jobs at the head of a queue, and claim those that it meets.
-- This finds those that jobs with a longer ttl hide. It scans the queue's jobs, a piece a
-- call. A job that is neither leased, delayed nor dead nor in the list has lost its
-- reference to another program. To look for it in the list takes the longer the longer
-- the list is, so an audit of a long list looks at few jobs a call. An expired job without
-- a reference leaves no tombstone: without an audit that is known where the list is short.
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
-- ARGV[3] int       about how many jobs to look at, 1 to 1,000; fewer where they are large
-- ARGV[4] int       1 = audit, too; else 0
-- ARGV[5] string    beginning of the channels that wake who waits
-- ARGV[6] string    the command that wakes: publish, or spublish in a cluster
-- RETURNS {now, cursor, expired, pushed}  cursor: '0' after the last piece; pushed: jobs that are ready again
--
-- USES whole, int, time, ends_of, is_over, foreign, in_pieces, read_all, wake, open_ledger, close_ledger, check_shard, caller_id, drop_id, drop_errors, forget, usable, push, remove
local name, count, audit = ARGV[1], whole(ARGV[3], 1), ARGV[4] == '1'
if #KEYS ~= 10 and #KEYS ~= 15 or #ARGV ~= 6 or not count or count > 1000 or not whole(ARGV[2], 0) then
  return redis.error_reply('ERR expire: bad arguments')
end
local now = time()
if not usable(KEYS[7], KEYS[8], KEYS[9]) then
  return redis.error_reply('WRONGTYPE a key of the queue has another type')
end
local k = { name = name, lease = KEYS[2], attempts = KEYS[3], delay = KEYS[5], tombstones = KEYS[6],
  r = KEYS[7], j = KEYS[8], d = KEYS[9], u = KEYS[10], head = {} }
if audit then
  count = math.max(1, math.min(count, math.floor(300000 / math.max(1, redis.call('LLEN', k.r)))))
end
-- HSCAN reads records whole, so it reads ten at a time, and about 1 MiB a call.
local cursor, looked, bytes, seen = ARGV[2], 0, 0, {}
local over, missing = {}, {}
repeat
  local piece = redis.call('HSCAN', k.j, cursor, 'COUNT', int(math.min(count, 10)))
  cursor = piece[1]
  for x = 1, #piece[2], 2 do
    local seq, record = piece[2][x], piece[2][x + 1]
    local expired = is_over(record, now)
    looked, bytes = looked + 1, bytes + #record
    if (expired or audit) and not seen[seq] and not redis.call('ZSCORE', k.lease, seq .. ' ' .. name) and not redis.call('ZSCORE', k.d, seq) then
      if expired then
        over[#over + 1] = { seq, caller_id(record) }
      elseif not redis.call('ZSCORE', k.delay, seq .. ' ' .. name) and not redis.call('LPOS', k.r, seq) then
        missing[#missing + 1] = seq
      end
    end
    seen[seq] = true
  end
until cursor == '0' or looked >= count or bytes >= 1048576
if #over + #missing == 0 then
  return { now, cursor, 0, 0 }
end
local totals, rejected = check_shard(KEYS[1], k.lease, k.attempts, KEYS[4], k.delay, k.tombstones, 10)
if not totals then
  return rejected
end
local length, walk = redis.call('LLEN', k.r), audit and 300000 or 30000 -- references that LPOS may pass over
for _, job in ipairs(over) do
  local unlisted = false
  if length <= walk and not redis.call('ZSCORE', k.delay, job[1] .. ' ' .. name) then
    unlisted = not redis.call('LPOS', k.r, job[1])
    walk = walk - length
  end
  remove(k, totals, name, job[1], job[2], unlisted)
  if totals.ends then
    totals.ends.ended(name, job[1], 'expired')
  end
end
table.sort(missing, function(a, b) return tonumber(a) < tonumber(b) end)
k.tail = missing
for _, seq in ipairs(totals.slots and missing or {}) do
  totals.slots.free(name, k.r, seq) -- its lease may have been taken with its reference
end
push(ARGV[6], ARGV[5], k)
totals.expired = totals.expired + #over
totals.lost = totals.lost + forget(KEYS[4], k.tombstones, k.r, k.j, name)
close_ledger(KEYS[1], totals)
return { now, cursor, #over, #missing }
