-- promote: what time has done: delayed jobs that are due become ready, jobs whose lease lapsed ready again or dead.
--
-- The caller read what is due; it is checked again. Expired jobs at the head of a queue
-- are dropped, so that a queue that nobody claims from ages honestly.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      leases by deadline, ms; .5 = the last try
-- KEYS[3] hash      attempts of jobs that were claimed before
-- KEYS[4] zset      queues that have jobs, by when their head deserves a look, ms
-- KEYS[5] zset      delayed jobs by due time, ms
-- KEYS[6] hash      tombstones, by queue
-- KEYS[7..] mixed   of each queue: list of ready, hash of jobs, zset of dead, hash of callers' ids
-- ARGV[1] string    beginning of the channels that wake who waits
-- ARGV[2] string    the command that wakes: publish, or spublish in a cluster
-- ARGV[3] ms        when a queue whose head never expires is looked at again
-- ARGV[4] int       queues, n
-- ARGV[5..] mixed   n names, each once, n times 1 where the queue keeps dead letters, else 0; then groups: queue's number,
--                   kind (delay, lease or head), count, at most 1,000, sequences
-- RETURNS {now, ready, dead, expired, lost}  jobs that became so
--
-- USES whole, int, time, foreign, open_ledger, close_ledger, check_shard, caller_id, drop_id, forget, usable, wake, bury
local channel, command, rest, n = ARGV[1], ARGV[2], whole(ARGV[3], 1), whole(ARGV[4], 1)
if not (rest and n) or #KEYS ~= 6 + 4 * n then
  return redis.error_reply('ERR promote: bad arguments')
end
local ledger, lease, attempts, queues, delay, tombstones = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local kinds = { delay = delay, lease = lease, head = queues }
local groups, at = {}, 5 + 2 * n
while at <= #ARGV do
  local i, count = whole(ARGV[at], 1), whole(ARGV[at + 2] or '', 0)
  if not (i and count and kinds[ARGV[at + 1]]) or i > n or count > 1000 or at + 2 + count > #ARGV then
    return redis.error_reply('ERR promote: bad arguments')
  end
  groups[#groups + 1] = { i = i, kind = ARGV[at + 1], at = at + 3, count = count }
  at = at + 3 + count
end
local now = time()
local totals, refused = check_shard(ledger, lease, attempts, queues, delay, tombstones)
if not totals then
  return refused
end
local ready = 0
local put_off = 60000 -- ms until something is looked at again whose queue has a key of another type

-- look drops what expired at the head of a queue.
local function look(k, name)
  local due = redis.call('ZSCORE', queues, name)
  if not due or tonumber(due) > now then
    return
  end
  local next_look, dropped, missing = now + rest, 0, 0
  while dropped < 256 do
    local seq = redis.call('LINDEX', k.r, 0)
    if not seq then
      break
    end
    local record = redis.call('HGET', k.j, seq)
    local ends = record and tonumber(string.sub(record, 1, 13))
    if ends and (ends == 0 or ends > now) then
      next_look = ends > 0 and math.min(ends, next_look) or next_look
      break
    end
    redis.call('LPOP', k.r)
    redis.call('HDEL', k.j, seq)
    redis.call('HDEL', attempts, seq .. ' ' .. name)
    if ends then
      drop_id(k.u, caller_id(record), seq)
      totals.expired = totals.expired + 1
    else
      missing = missing + 1
    end
    dropped = dropped + 1
  end
  if missing > 0 then
    local left = redis.call('HINCRBY', tombstones, name, -missing)
    if left < 0 then
      totals.lost = totals.lost - left
    end
    if left <= 0 then
      redis.call('HDEL', tombstones, name)
    end
  end
  if redis.call('LLEN', k.r) == 0 then
    redis.call('HDEL', tombstones, name)
  end
  redis.call('ZADD', queues, int(dropped < 256 and next_look or now), name)
  totals.lost = totals.lost + forget(queues, tombstones, k.r, k.j, name)
end

-- move takes those of a group that are due out of their zset.
local function move(g, k, name)
  local from, members = kinds[g.kind], {}
  for x = 1, g.count do
    members[x] = ARGV[g.at + x - 1] .. ' ' .. name
  end
  local scores = redis.call('ZMSCORE', from, unpack(members))
  local before = g.kind == 'lease' and redis.call('HMGET', attempts, unpack(members))
  local refs, gone, once, last, seen = {}, {}, {}, {}, {}
  for x = 1, g.count do
    local score = scores[x] and tonumber(scores[x])
    if score and score <= now and not seen[members[x]] then
      seen[members[x]] = true
      gone[#gone + 1] = members[x]
      if before and score ~= math.floor(score) then
        last[#last + 1] = ARGV[g.at + x - 1]
      else
        refs[#refs + 1] = ARGV[g.at + x - 1]
        if before and not before[x] then
          once[#once + 1] = members[x]
          once[#once + 1] = '1'
        end
      end
    end
  end
  if #gone > 0 then
    redis.call('ZREM', from, unpack(gone))
  end
  if #once > 0 then
    redis.call('HSET', attempts, unpack(once))
  end
  if #refs > 0 then
    wake(command, channel, name, redis.call('RPUSH', k.r, unpack(refs)), #refs)
    ready = ready + #refs
  end
  for _, seq in ipairs(last) do
    redis.call('HDEL', attempts, seq .. ' ' .. name)
    bury(k, totals, seq, now, ARGV[4 + n + g.i] == '1')
  end
  if #last > 0 then
    totals.lost = totals.lost + forget(queues, tombstones, k.r, k.j, name)
  end
end

-- wait puts off what belongs to a queue that cannot be served, so that the caller meets
-- what is due behind it.
local function wait(g, name)
  if g.kind == 'head' then
    redis.call('ZADD', queues, 'XX', int(now + put_off), name)
  end
  for x = 1, g.count do
    local member = ARGV[g.at + x - 1] .. ' ' .. name
    local score = redis.call('ZSCORE', kinds[g.kind], member)
    if score and tonumber(score) <= now then
      local last = string.find(score, '.5', 1, true)
      redis.call('ZADD', kinds[g.kind], int(now + put_off) .. (last and '.5' or ''), member)
    end
  end
end

for _, g in ipairs(groups) do
  local base, name = 7 + 4 * (g.i - 1), ARGV[4 + g.i]
  local k = { r = KEYS[base], j = KEYS[base + 1], d = KEYS[base + 2], u = KEYS[base + 3] }
  if not usable(k.r, k.j, k.d) then
    wait(g, name)
  elseif g.kind == 'head' then
    look(k, name)
  elseif g.count > 0 then
    move(g, k, name)
  end
end
close_ledger(ledger, totals)
return { now, ready, totals.died, totals.expired, totals.lost }
