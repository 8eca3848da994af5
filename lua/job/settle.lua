-- settle: end or change leases of jobs whose work is not done.
--
-- nack gives a job back for later, bury gives it up, requeue gives it back at the head as
-- if it had not been claimed, touch makes its lease longer. defer does, too, and marks the
-- job: somebody else will settle it. The fraction of the deadline holds the mark, .25. Only the holder may: the one
-- that names the attempt it holds. nack after the last try buries. Jobs of one queue that
-- are requeued by one call keep their order. A requeue takes the attempt back, and the next
-- holder has the same one: a requeue that may be repeated names its deadline, too. Nobody
-- holds a job whose lease and ttl are both over. Of a job the last three reasons are kept, the newest first: lines of attempt,
-- ms and text. A key of another type keeps none. A touch may say how far the work got: the last word is kept, with its attempt.
-- Then attempts has the job from its first claim on, so that whatever ends the job forgets it. A requeue forgets it, too: the next
-- holder of that attempt has said nothing.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      leases by deadline, ms; .5 = the last try, .25 = deferred
-- KEYS[3] hash      attempts of jobs that were claimed before
-- KEYS[4] zset      queues that have jobs
-- KEYS[5] zset      delayed jobs by due time, ms
-- KEYS[6] hash      tombstones, by queue
-- KEYS[7..] mixed   of each queue: list of ready, hash of jobs, zset of dead, hash of callers' ids
-- ARGV[1] string    beginning of the channels that wake who waits
-- ARGV[2] string    the command that wakes: publish, or spublish in a cluster
-- ARGV[3] int       queues, n
-- ARGV[4..] mixed   n names, each once, n times 1 where the queue keeps dead letters, else 0; then for each job:
--                   queue's number, sequence, attempt (0: any), verb, ms (nack: delay; touch, defer: ttr;
--                   requeue: deadline of the lease, 0: any). nack and bury may say
--                   why the work failed, behind a space: a text without line feeds, 1 KiB at most. touch may say how far it got:
--                   percent, a space and a text, which may be empty, 200 bytes at most
-- RETURNS {now, done...}  for each job: 0 gone, 1 ready, 2 delayed, 3 dead, 4 expired, 5 lost, 6 still leased, -1 a key has another type
--
-- USES whole, int, time, ends_of, is_over, foreign, in_pieces, read_all, wake, open_ledger, close_ledger, caller_id, drop_id, drop_errors, forget, open_queue, push, mortal, bury
local channel, command, n = ARGV[1], ARGV[2], whole(ARGV[3], 1)
if not n or #KEYS ~= 6 + 4 * n and #KEYS ~= 11 + 4 * n or (#ARGV - 3 - 2 * n) % 5 ~= 0 then
  return redis.error_reply('ERR settle: bad arguments')
end
local ledger, lease, attempts, queues, delay, tombstones = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local jobs, members, asks = {}, {}, { nack = 0, bury = 0, requeue = 0, touch = 0, defer = 0 }
for at = 4 + 2 * n, #ARGV, 5 do
  local i, attempt, verb, ms = whole(ARGV[at], 1), whole(ARGV[at + 2], 0), ARGV[at + 3], whole(ARGV[at + 4], 0)
  local said
  if not asks[verb] then
    verb, said = string.match(verb, '^(%a+) ([^\n]+)$')
  end
  local form = ({ nack = '', bury = '', touch = '^%d+ ' })[verb or '']
  if not (i and attempt and ms and verb and asks[verb]) or said and not (form and string.find(said, form)) or i > n or ms > 1e12 and verb ~= 'requeue' then
    return redis.error_reply('ERR settle: bad arguments')
  end
  asks[verb] = asks[verb] + 1
  members[#members + 1] = ARGV[at + 1] .. ' ' .. ARGV[3 + i]
  jobs[#jobs + 1] = { i = i, seq = ARGV[at + 1], attempt = attempt, verb = verb, ms = ms, said = said }
end
local now = time()
if #jobs == 0 then
  return { now }
end

-- Read all, then judge each job by what those before it leave. Nothing is written yet.
local totals, rejected = open_ledger(ledger, 6 + 4 * n)
if not totals then
  return rejected
end
local scores, before = read_all(redis.call, 'ZMSCORE', lease, members), read_all(redis.call, 'HMGET', attempts, members)
local delayable = asks.nack == 0 or not foreign(redis.pcall('ZCARD', delay))
local opened, open, leased = {}, {}, {}
local gone, prolonged, uncounted, counted, due, ending = {}, {}, {}, {}, {}, {}
local read, reported = 0, {}

local function queue_of(i)
  if opened[i] == nil then
    opened[i] = open_queue(7 + 4 * (i - 1), ARGV[3 + i]) or false
    if opened[i] then
      opened[i].texts = {}
      open[#open + 1] = opened[i]
    end
  end
  return opened[i]
end

local function add(list, a, b)
  list[#list + 1] = a
  list[#list + 1] = b
end

local function judge(x, job, member)
  local attempt, score = tonumber(before[x] or 1) or 1, leased[member]
  if score == nil then
    score = tonumber(scores[x] or nil) or false
  end
  if not score or job.attempt > 0 and job.attempt ~= attempt then
    return 0
  end
  if job.verb == 'requeue' and job.ms > 0 and math.floor(score) ~= job.ms then
    return 0
  end
  if score <= now and read < 1048576 then
    local reply = redis.pcall('HGET', KEYS[4 + 4 * job.i], job.seq)
    local record = not foreign(reply) and reply or ''
    read = read + #record
    if is_over(record, now) then
      return 0 -- promote ends it
    end
  end
  local last = score % 1 >= 0.5
  if job.verb == 'touch' or job.verb == 'defer' then
    local k = job.said and queue_of(job.i)
    if k then
      k.texts['%' .. job.seq] = int(attempt) .. ' ' .. job.said
      reported[member] = not before[x] or nil
    elseif job.said then
      return -1
    end
    local mark = (last and 0.5 or 0) + ((job.verb == 'defer' or score % 0.5 >= 0.25) and 0.25 or 0)
    add(prolonged, int(now + job.ms) .. string.sub(tostring(mark), 2), member)
    leased[member] = now + job.ms + mark
    return 6
  end
  local k = queue_of(job.i)
  local ends = job.verb == 'bury' or job.verb == 'nack' and last
  local later = job.verb == 'nack' and job.ms > 0
  if not k or ends and not mortal(k) or later and not delayable then
    return -1
  end
  if job.said then
    local older = before[x] and redis.pcall('HGET', k.u, '!' .. job.seq)
    local text = int(attempt) .. ' ' .. int(now) .. ' ' .. job.said
    if older and not foreign(older) then
      text = text .. '\n' .. (string.match(older, '^[^\n]*\n[^\n]*') or older)
    end
    k.texts['!' .. job.seq] = text
  end
  local first = before[x] or reported[member]
  leased[member], reported[member] = false, nil
  if totals.slots then
    totals.slots.free(k.name, k.r, job.seq)
  end
  gone[#gone + 1] = member
  if ends then
    uncounted[#uncounted + 1] = member
    ending[#ending + 1] = { x = x + 1, k = k, seq = job.seq, keeps = ARGV[3 + n + job.i] == '1',
      reason = job.verb == 'nack' and 'nacked' or 'buried' }
    return 0
  elseif job.verb == 'requeue' then
    k.head[#k.head + 1] = job.seq
    if first then
      k.texts['%' .. job.seq] = false
    end
    if attempt > 1 then
      add(counted, member, int(attempt - 1))
    else
      uncounted[#uncounted + 1] = member
    end
    return 1
  end
  if not before[x] then
    add(counted, member, '1')
  end
  if later then
    add(due, int(now + job.ms), member)
    return 2
  end
  k.tail[#k.tail + 1] = job.seq
  return 1
end

local result = { now }
for x, job in ipairs(jobs) do
  result[x + 1] = judge(x, job, members[x])
end

-- The first write needs no memory, also where it removes nothing: the call runs when the
-- store is full.
uncounted[1] = uncounted[1] or ''
in_pieces(redis.call, 'HDEL', attempts, uncounted)
in_pieces(redis.call, 'ZADD', lease, prolonged)
in_pieces(redis.call, 'ZREM', lease, gone)
for member in pairs(reported) do
  add(counted, member, '1')
end
in_pieces(redis.call, 'HSET', attempts, counted)
in_pieces(redis.call, 'ZADD', delay, due)
for _, k in ipairs(open) do
  local kept, dropped = {}, {}
  for field, text in pairs(k.texts) do
    if text then
      add(kept, field, text)
    else
      dropped[#dropped + 1] = field
    end
  end
  in_pieces(redis.pcall, 'HSET', k.u, kept)
  in_pieces(redis.pcall, 'HDEL', k.u, dropped)
end
local codes = { dead = 3, expired = 4, lost = 5 }
for _, job in ipairs(ending) do
  result[job.x] = codes[bury(job.k, totals, job.seq, now, job.keeps, job.reason)]
end
for _, k in ipairs(open) do
  push(command, channel, k)
  if #ending > 0 and mortal(k) then
    totals.lost = totals.lost + forget(queues, tombstones, k.r, k.j, k.name)
  end
end
close_ledger(ledger, totals)
return result
