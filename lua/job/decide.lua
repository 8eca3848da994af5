-- decide: commit or roll back a prepared job. The first decision stands; repeating it does nothing.
--
-- A commit makes the job ready, or delayed until its delay, which counts from its publish, is over. A rollback deletes
-- it. Decisions are remembered as results of idempotent publishes are, as long as there is room for one.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      leases by deadline, ms
-- KEYS[3] hash      attempts of jobs that were claimed before
-- KEYS[4] zset      queues that have jobs
-- KEYS[5] zset      delayed jobs by due time, ms; prepared ones by minus the time when their publisher is asked
-- KEYS[6] hash      tombstones, by queue
-- KEYS[7] list      ready jobs of the queue
-- KEYS[8] hash      its jobs
-- KEYS[9] zset      its dead jobs by the time of death, ms
-- KEYS[10] hash     its callers' ids
-- KEYS[11] string   the decision
-- ARGV[1] string    name of the queue
-- ARGV[2] string    sequence, and behind a colon the caller's id
-- ARGV[3] string    commit or rollback
-- ARGV[4] ms        how long the decision is remembered
-- ARGV[5] int       results that the shard may keep
-- ARGV[6] string    beginning of the channels that wake who waits
-- ARGV[7] string    the command that wakes: publish, or spublish in a cluster
-- RETURNS {now, status, due}  1 done, due: ms when the job is ready, 0 now or never; 2 done before. Rejected: 0 there is no such job,
--                   3 the opposite was done before, 4 the job is not prepared
--
-- USES whole, int, time, read_keys, count_key, keys_text, foreign, in_pieces, read_all, wake, open_ledger, close_ledger, check_shard, caller_id, ends_of, is_over, is_prepared, drop_id, drop_errors, remove, forget, usable, open_queue, push
local name, verb, keep, max_keys = ARGV[1], ARGV[3], whole(ARGV[4], 1), whole(ARGV[5], 0)
local seq, id = string.match(ARGV[2] or '', '^(%d+):?(.*)$')
if #KEYS ~= 11 and #KEYS ~= 16 or #ARGV ~= 7 or not (keep and max_keys and seq) or verb ~= 'commit' and verb ~= 'rollback' then
  return redis.error_reply('ERR decide: bad arguments')
end
local now = time()
local decided = redis.call('GET', KEYS[11])
if decided then
  return { now, decided == verb and 2 or 3, 0 }
end
local ledger, lease, attempts, queues, delay, tombstones = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local member = seq .. ' ' .. name
local record = redis.call('HGET', KEYS[8], seq)
if not record or (caller_id(record) or '') ~= id then
  return { now, 0, 0 }
end
local leased, dead = redis.call('ZSCORE', lease, member), redis.call('ZSCORE', KEYS[9], seq)
if is_over(record, now) and not dead and tonumber(leased or 0) <= now then
  return { now, 0, 0 }
elseif not is_prepared(delay, member) then
  return { now, 4, 0 }
elseif not usable(KEYS[7], KEYS[8], KEYS[9]) then
  return redis.error_reply('WRONGTYPE a key of the queue has another type')
end
local totals, rejected = check_shard(ledger, lease, attempts, queues, delay, tombstones, 11)
if not totals then
  return rejected
end
local k, due = open_queue(7, name), 0
if verb == 'rollback' then
  k.lease, k.attempts, k.delay, k.tombstones = lease, attempts, delay, tombstones
  remove(k, totals, name, seq, id ~= '' and id)
  totals.deleted = totals.deleted + 1
  if totals.ends then
    totals.ends.ended(name, seq, 'deleted')
  end
  totals.lost = totals.lost + forget(queues, tombstones, k.r, k.j, name)
else
  local text = totals.ends and redis.call('HGET', totals.ends.on_end, member) or ''
  local wait, rest = string.match(text, '^p%d+ %d+ (%d+)[^\n]*\n(.*)$')
  redis.call('ZREM', delay, member)
  if rest and string.find('\n' .. rest, '\n[sqw]') then
    redis.call('HSET', totals.ends.on_end, member, rest)
  elseif text ~= '' then
    redis.call('HDEL', totals.ends.on_end, member)
  end
  due = math.floor(seq / 1000) + (tonumber(wait) or 0)
  if due > now then
    redis.call('ZADD', delay, int(due), member)
  else
    due, k.tail = 0, { seq }
    push(ARGV[7], ARGV[6], k)
  end
end
local ends, kept = read_keys(redis.call('HGET', ledger, 'keys'), now)
if kept < max_keys then
  count_key(ends, now, keep)
  redis.call('HSET', ledger, 'keys', keys_text(ends))
  redis.call('SET', KEYS[11], verb, 'PX', keep)
end
close_ledger(ledger, totals)
return { now, 1, due }
