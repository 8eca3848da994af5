-- promote: what time has done: delayed jobs that are due become ready, jobs whose lease lapsed ready again or dead,
-- publishers of prepared jobs are asked, and those that nobody decides on die.
--
-- The caller read what is due; it is checked again. Expired jobs at the head of a queue
-- are dropped, so that a queue that nobody claims from ages honestly. So are those at the
-- head of a list that was empty before jobs came back to it: their ttl may have ended in
-- somebody's hands, after the last look.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      leases by deadline, ms; .5 = the last try
-- KEYS[3] hash      attempts of jobs that were claimed before
-- KEYS[4] zset      queues that have jobs, by when their head deserves a look, ms
-- KEYS[5] zset      delayed jobs by due time, ms; prepared ones by minus the time when their publisher is asked
-- KEYS[6] hash      tombstones, by queue
-- KEYS[7..] mixed   of each queue: list of ready, hash of jobs, zset of dead, hash of callers' ids
-- ARGV[1] string    beginning of the channels that wake who waits
-- ARGV[2] string    the command that wakes: publish, or spublish in a cluster
-- ARGV[3] ms        when a queue whose head never expires is looked at again
-- ARGV[4] int       queues, n
-- ARGV[5..] mixed   n names, each once, n times 1 where the queue keeps dead letters, else 0; then groups: queue's number, kind (delay, lease or head), count, sequences
-- RETURNS {now, ready, dead, expired, lost, more}  jobs that became so; more: 1 where a head has more to drop, else 0
--
-- USES whole, int, time, ends_of, foreign, in_pieces, read_all, wake, open_ledger, close_ledger, check_shard, caller_id, drop_id, drop_errors, skip_tombstones, forget, open_queue, push, mortal, bury
local channel, command, rest, n = ARGV[1], ARGV[2], whole(ARGV[3], 1), whole(ARGV[4], 1)
if not (rest and n) or #KEYS ~= 6 + 4 * n and #KEYS ~= 11 + 4 * n then
  return redis.error_reply('ERR promote: bad arguments')
end
local ledger, lease, attempts, queues, delay, tombstones = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local kinds = { delay = delay, lease = lease, head = queues }
local groups, at = {}, 5 + 2 * n
while at <= #ARGV do
  local i, kind, count = whole(ARGV[at], 1), ARGV[at + 1], whole(ARGV[at + 2] or '', 0)
  if not (i and count and kinds[kind]) or i > n or at + 2 + count > #ARGV then
    return redis.error_reply('ERR promote: bad arguments')
  end
  groups[#groups + 1] = { i = i, kind = kind, at = at + 3, count = count }
  at = at + 3 + count
end
local now = time()
local totals, rejected = check_shard(ledger, lease, attempts, queues, delay, tombstones, 6 + 4 * n)
if not totals then
  return rejected
end
local put_off = 60000 -- ms until a queue is looked at again where a key has another type
local opened, open, ready = {}, {}, 0
for i = 1, n do
  local k = open_queue(7 + 4 * (i - 1), ARGV[4 + i])
  if k then
    k.keeps = ARGV[4 + n + i]
    opened[i], open[#open + 1] = k, k
  end
end

-- move takes those that are due out of a zset.
local function move(kind)
  local zset, seqs, members, owner, seen = kinds[kind], {}, {}, {}, {}
  for _, g in ipairs(groups) do
    for x = g.at, g.kind == kind and g.at + g.count - 1 or 0 do
      local member = ARGV[x] .. ' ' .. ARGV[4 + g.i]
      if not seen[member] then
        seen[member] = true
        local m = #members + 1
        seqs[m], members[m], owner[m] = ARGV[x], member, g.i
      end
    end
  end
  if #members == 0 then
    return
  end
  local scores = read_all(redis.call, 'ZMSCORE', zset, members)
  local before = kind == 'lease' and read_all(redis.call, 'HMGET', attempts, members)
  local gone, once, later, ending = {}, {}, {}, {}
  for x, member in ipairs(members) do
    local score = tonumber(scores[x] or nil)
    if score and math.abs(score) <= now then
      local k = opened[owner[x]]
      local last, sign, pause = kind == 'lease' and score % 1 >= 0.5, '', nil
      if score < 0 then
        last, sign = true, '-'
      end
      local closed = not k or last and not mortal(k)
      if score < 0 and not closed and redis.call('HEXISTS', k.j, seqs[x]) == 1 then
        pause = totals.ends and totals.ends.ask(k.name, seqs[x])
      end
      if closed or pause then
        later[#later + 1] = sign .. int(now + (pause or put_off)) .. (kind == 'lease' and last and '.5' or '')
        later[#later + 1] = member
      else
        gone[#gone + 1] = member
        if kind == 'lease' and totals.slots then
          totals.slots.free(k.name, k.r, seqs[x])
        end
        if last then
          ending[#ending + 1] = { k = k, seq = seqs[x], member = member, keeps = k.keeps == '1',
            reason = kind == 'lease' and 'lapsed' or 'undecided' }
        else
          k.tail[#k.tail + 1] = seqs[x]
          k.lapsed = k.lapsed or kind == 'lease'
          ready = ready + 1
          if before and not before[x] then
            once[#once + 1] = member
            once[#once + 1] = '1'
          end
        end
      end
    end
  end
  in_pieces(redis.call, 'ZREM', zset, gone)
  in_pieces(redis.call, 'ZADD', zset, later)
  in_pieces(redis.call, 'HSET', attempts, once)
  for _, job in ipairs(ending) do
    redis.call('HDEL', attempts, job.member)
    bury(job.k, totals, job.seq, now, job.keeps, job.reason)
    job.k.ended = true
  end
end

-- look drops what expired at the head of a queue, where that is due, or early. All heads together read about 1 MiB at
-- most and drop 512 references; what is left stays due.
local read, dropped, more = 0, 0, 0
local function look(k, early)
  local due = redis.call('ZSCORE', queues, k.name)
  if not due or tonumber(due) > now and not early then
    return
  end
  local next_look, missing = nil, 0
  while dropped < 512 and read < 1048576 do
    local seq = redis.call('LINDEX', k.r, 0)
    local record = seq and redis.call('HGET', k.j, seq)
    local ends = ends_of(record)
    if not seq or ends and (ends == 0 or ends > now) then
      next_look = ends and ends > 0 and math.min(ends, now + rest) or now + rest
      break
    end
    read = read + (record and #record or 0)
    redis.call('LPOP', k.r)
    redis.call('HDEL', k.j, seq)
    if redis.call('HDEL', attempts, seq .. ' ' .. k.name) == 1 then
      drop_errors(k.u, { seq })
    end
    if ends then
      drop_id(k.u, caller_id(record), seq)
      totals.expired = totals.expired + 1
    else
      missing = missing + 1
    end
    if totals.ends then
      totals.ends.ended(k.name, seq, ends and 'expired' or 'lost')
    end
    dropped = dropped + 1
  end
  totals.lost = totals.lost + skip_tombstones(tombstones, k.r, k.name, missing)
  if not next_look then
    next_look, more = now, 1
  end
  redis.call('ZADD', queues, int(next_look), k.name)
  k.ended = true
end

move('delay')
move('lease')
for _, k in ipairs(open) do
  local alone = push(command, channel, k)
  if alone and k.lapsed and mortal(k) then
    look(k, true)
  end
end
for _, g in ipairs(groups) do
  local k = opened[g.i]
  if g.kind == 'head' then
    if k and mortal(k) then
      look(k)
    else
      redis.call('ZADD', queues, 'XX', int(now + put_off), ARGV[4 + g.i])
    end
  end
end
for _, k in ipairs(open) do
  if k.ended then
    totals.lost = totals.lost + forget(queues, tombstones, k.r, k.j, k.name)
  end
end
close_ledger(ledger, totals)
return { now, ready, totals.died, totals.expired, totals.lost, more }
