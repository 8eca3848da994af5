-- settle: end or change leases of jobs whose work is not done.
--
-- nack gives a job back for later, bury gives it up, requeue gives it back at the head as
-- if it had not been claimed, touch makes its lease longer. Only the holder may: the one
-- that names the attempt it holds. nack after the last try buries.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      leases by deadline, ms; .5 = the last try
-- KEYS[3] hash      attempts of jobs that were claimed before
-- KEYS[4] zset      queues that have jobs
-- KEYS[5] zset      delayed jobs by due time, ms
-- KEYS[6] hash      tombstones, by queue
-- KEYS[7..] mixed   of each queue: list of ready, hash of jobs, zset of dead, hash of callers' ids
-- ARGV[1] string    beginning of the channels that wake who waits
-- ARGV[2] string    the command that wakes: publish, or spublish in a cluster
-- ARGV[3] int       queues, n
-- ARGV[4..] mixed   n names, each once, n times 1 where the queue keeps dead letters, else 0; then for each job:
--                   queue's number, sequence, attempt (0: whoever holds it), verb, ms (nack: delay; touch: ttr)
-- RETURNS {now, done...}  for each job: 0 gone, 1 ready, 2 delayed, 3 dead, 4 expired, 5 lost, 6 still leased, -1 a key has another type
--
-- USES whole, int, time, foreign, open_ledger, close_ledger, check_shard, caller_id, drop_id, forget, usable, wake, bury
local channel, command, n = ARGV[1], ARGV[2], whole(ARGV[3], 1)
if not n or #KEYS ~= 6 + 4 * n or (#ARGV - 3 - 2 * n) % 5 ~= 0 then
  return redis.error_reply('ERR settle: bad arguments')
end
local ledger, lease, attempts, queues, delay, tombstones = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local verbs = { nack = true, bury = true, requeue = true, touch = true }
local jobs = {}
for at = 4 + 2 * n, #ARGV, 5 do
  local i, attempt, ms = whole(ARGV[at], 1), whole(ARGV[at + 2], 0), whole(ARGV[at + 4], 0)
  if not (i and attempt and ms) or i > n or not verbs[ARGV[at + 3]] then
    return redis.error_reply('ERR settle: bad arguments')
  end
  jobs[#jobs + 1] = { i = i, seq = ARGV[at + 1], attempt = attempt, verb = ARGV[at + 3], ms = ms }
end
local now = time()
local totals, refused = check_shard(ledger, lease, attempts, queues, delay, tombstones)
if not totals then
  return refused
end
local result, states = { now }, { dead = 3, expired = 4, lost = 5 }
local checked = {}

local function serve(job)
  local base, name = 7 + 4 * (job.i - 1), ARGV[3 + job.i]
  local k = { r = KEYS[base], j = KEYS[base + 1], d = KEYS[base + 2], u = KEYS[base + 3] }
  if checked[job.i] == nil then
    checked[job.i] = usable(k.r, k.j, k.d)
  end
  if not checked[job.i] then
    return -1
  end
  local member = job.seq .. ' ' .. name
  local score = redis.call('ZSCORE', lease, member)
  local before = redis.call('HGET', attempts, member)
  local attempt = tonumber(before or 1) or 1
  if not score or job.attempt > 0 and job.attempt ~= attempt then
    return 0
  end
  local last = string.find(score, '.5', 1, true)
  if job.verb == 'touch' then
    redis.call('ZADD', lease, int(now + job.ms) .. (last and '.5' or ''), member)
    return 6
  end
  redis.call('ZREM', lease, member)
  if job.verb == 'requeue' then
    if attempt > 1 then
      redis.call('HSET', attempts, member, int(attempt - 1))
    else
      redis.call('HDEL', attempts, member)
    end
    wake(command, channel, name, redis.call('LPUSH', k.r, job.seq), 1)
    return 1
  elseif last or job.verb == 'bury' then
    redis.call('HDEL', attempts, member)
    local state = bury(k, totals, job.seq, now, ARGV[3 + n + job.i] == '1')
    totals.lost = totals.lost + forget(queues, tombstones, k.r, k.j, name)
    return states[state]
  end
  if not before then
    redis.call('HSET', attempts, member, '1')
  end
  if job.ms > 0 then
    redis.call('ZADD', delay, int(now + job.ms), member)
    return 2
  end
  wake(command, channel, name, redis.call('RPUSH', k.r, job.seq), 1)
  return 1
end

for _, job in ipairs(jobs) do
  result[#result + 1] = serve(job)
end
close_ledger(ledger, totals)
return result
