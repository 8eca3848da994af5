-- respawn: make dead letters of a queue ready again, each with one try more, or delete them, or count them: the oldest
-- that match a selection, or those that are named.
--
-- A respawned job has one try more and a new ttl. Its next attempt is the last one that it may have, so that no
-- holder of an earlier one can settle the lease. A call reads and writes about 1 MiB of jobs, so large ones take
-- several calls; one with a selection looks at 1,000 at most.
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
-- KEYS[10] hash     its callers' ids, and why attempts of its jobs failed
-- ARGV[1] string    name of the queue
-- ARGV[2] string    respawn, delete or count
-- ARGV[3] int       how many, 1 to 100; to count, to 1,000
-- ARGV[4] ms        ttl from now, 0 = for ever
-- ARGV[5] string    beginning of the channels that wake who waits
-- ARGV[6] string    the command that wakes: publish, or spublish in a cluster
-- ARGV[7] int       only those that died so: see death_reason; 0 = any
-- ARGV[8] ms        only those that died so long ago, or longer
-- ARGV[9] string    only those whose last error has this in it; '' = any
-- ARGV[10] string   begin behind this score; '' = at the oldest
-- ARGV[11] string   and this sequence
-- ARGV[12..] string only these, 100 at most: sequence, and behind a colon the caller's id
-- RETURNS {now, count, score, sequence, state...}  jobs respawned, deleted or counted; where the next call begins, '' at
--                   the end; of each that was named: 1 done, 0 it is not dead, 2 not looked at, ask again
--
-- USES whole, int, time, foreign, in_pieces, read_all, wake, open_ledger, close_ledger, check_shard, caller_id, drop_id, drop_errors, forget, usable, death_reason, rank_after
local name, verb, count, ttl = ARGV[1], ARGV[2], whole(ARGV[3], 1), whole(ARGV[4], 0)
local reason, age, part = whole(ARGV[7] or '', 0), whole(ARGV[8] or '', 0), ARGV[9]
local most = ({ respawn = 100, delete = 100, count = 1000 })[verb]
if #KEYS ~= 10 or #ARGV < 11 or #ARGV > 111 or not (most and count and ttl and reason and age) or count > most
  or not string.match(ARGV[10], '^%d*%.?%d*$') then
  return redis.error_reply('ERR respawn: bad arguments')
end
local ledger, attempts, queues, tombstones = KEYS[1], KEYS[3], KEYS[4], KEYS[6]
local r, j, d, u = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local now = time()
if not usable(r, j, d) then
  return redis.error_reply('WRONGTYPE a key of the queue has another type')
end
local result = { now, 0, '', '' }
local seqs, records, bytes = {}, {}, 0

-- matches tells whether a dead letter is one of the selection.
local function matches(seq, score)
  if reason > 0 and death_reason(score) ~= reason then
    return false
  end
  if part == '' then
    return true
  end
  local errors = redis.pcall('HGET', u, '!' .. seq)
  local last = errors and not foreign(errors) and string.match(errors, '^%d+ %d+ ([^\n]*)')
  return last and string.find(last, part, 1, true)
end

-- named finds those that the caller named. Each is read, as its record has the caller's id.
local function named()
  local seen = {}
  for x = 12, #ARGV do
    local seq, id = string.match(ARGV[x], '^(%d+):?(.*)$')
    local there = seq and not seen[seq] and redis.call('ZSCORE', d, seq)
    result[x - 7] = there and bytes > 1048576 and 2 or 0
    local record = there and result[x - 7] == 0 and redis.call('HGET', j, seq)
    if record and (caller_id(record) or '') == id then
      local m = #seqs + 1
      seen[seq], seqs[m], records[m], bytes, result[x - 7] = true, seq, record, bytes + #record, 1
    end
  end
end

-- selected finds the oldest of the selection behind the cursor, and moves it.
local function selected()
  local step = (reason > 0 or part ~= '') and 1000 or count
  local index = ARGV[10] == '' and 0 or rank_after(d, ARGV[10], ARGV[11])
  local found = redis.call('ZRANGE', d, int(index), int(index + step - 1), 'WITHSCORES')
  local looked, more = 0, #found == 2 * step
  for x = 1, #found, 2 do
    local seq, score = found[x], tonumber(found[x + 1])
    if age > 0 and score > now - age then
      more = false
      break
    elseif #seqs == count or bytes > 1048576 then
      more = true
      break
    elseif matches(seq, score) then
      local record = verb ~= 'count' and redis.call('HGET', j, seq)
      local m = #seqs + 1
      seqs[m], records[m], bytes = seq, record, bytes + (record and #record or 0)
    end
    looked = x
  end
  if more and looked > 0 then
    result[3], result[4] = found[looked + 1], found[looked]
  end
end

if #ARGV > 11 then
  named()
else
  selected()
end
result[2] = #seqs
if #seqs == 0 or verb == 'count' then
  return result
end
local totals, rejected = check_shard(ledger, KEYS[2], attempts, queues, KEYS[5], tombstones)
if not totals then
  return rejected
end
redis.call('ZREM', d, unpack(seqs))
local counted, back, rewritten, gone = {}, {}, {}, {}
local ends = ttl > 0 and string.format('%013.0f', now + ttl) or '0000000000000'
for x, seq in ipairs(seqs) do
  local tries, rest
  if records[x] then
    tries, rest = string.match(records[x], '^%d+ (%d+)(.*)$')
  end
  if rest and verb == 'respawn' then
    back[#back + 1] = seq
    rewritten[#rewritten + 1] = seq
    rewritten[#rewritten + 1] = ends .. ' ' .. int(tries + 1) .. rest
    counted[#counted + 1] = seq .. ' ' .. name
    counted[#counted + 1] = tries
  else
    gone[#gone + 1] = seq
    local class = rest and 'deleted' or 'lost'
    totals[class] = totals[class] + 1
    if rest then
      drop_id(u, caller_id(records[x]), seq)
    end
  end
end
totals.dead = -#seqs
if #gone > 0 then
  redis.call('HDEL', j, unpack(gone))
  drop_errors(u, gone)
end
if #back > 0 then
  totals.respawned = #back
  redis.call('HSET', j, unpack(rewritten))
  redis.call('HSET', attempts, unpack(counted))
  wake(ARGV[6], ARGV[5], name, redis.call('RPUSH', r, unpack(back)), #back)
end
totals.lost = totals.lost + forget(queues, tombstones, r, j, name)
close_ledger(ledger, totals)
result[2] = totals.respawned + totals.deleted
return result
