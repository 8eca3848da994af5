-- ack: the work of these jobs is done, or nobody wants them any more: remove them from whatever state they are in.
--
-- Repeating it does nothing. A job that is named twice is acked once. One whose ttl is over is none and counts as expired,
-- unless it is leased or dead; that is known of jobs of about 1 MiB a call. It keeps as many.
--
-- KEYS[1] hash      the shard's ledger
-- KEYS[2] zset      leases by deadline, ms
-- KEYS[3] hash      attempts of jobs that were claimed before
-- KEYS[4] zset      queues that have jobs
-- KEYS[5] zset      delayed jobs by due time, ms
-- KEYS[6] hash      tombstones, by queue
-- KEYS[7..] mixed   of each queue: list of ready, hash of jobs, zset of dead, hash of callers' ids; where queues keep acked jobs, then
--                   those of drop_kept: of the shard, and two for each such queue
-- ARGV[1] int       queues, n
-- ARGV[2..] mixed   n names, each once, of one that keeps acked jobs with ms, and how many of the shard behind spaces; then groups: queue's number, count, at most 1,000, jobs: sequence[[!][!][!]:[caller's id][ result]];
--                   with ! it is deleted, and not kept; with !! nobody did its work, which its end tells;
--                   with !!! it lives on elsewhere, so it counts as deleted and its end is not told
-- RETURNS {now, done...}  for each job: 1 acked, 2 deleted, because it was never claimed, 0 there is none, 3 it is prepared, which only its publisher ends,
--                   -1 a key has another type, -2 the call keeps as much as it may: ask again
--
-- USES whole, int, time, foreign, in_pieces, open_ledger, close_ledger, drop_id, drop_errors
local n = whole(ARGV[1], 1)
local names, keeps, key = {}, {}, 6 + 4 * (n or 0)
for i = 1, n or 0 do
  local name = ARGV[1 + i] or ''
  if string.find(name, ' ', 1, true) then
    local keep, all = string.match(name, ' (%d+) (%d+)$')
    name, key = string.match(name, '^%S+'), key + (next(keeps) and 2 or 3)
    keeps[i] = { name = name, keep = tonumber(keep), all = tonumber(all), until_ms = KEYS[key - 1], kept = KEYS[key] }
  end
  names[i] = name
end
if not n or #KEYS ~= key and #KEYS ~= key + 5 then
  return redis.error_reply('ERR ack: bad arguments')
end
local ledger, lease, attempts, queues, delay, tombstones = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local groups, at = {}, 2 + n
while at <= #ARGV do
  local i, count = whole(ARGV[at], 1), whole(ARGV[at + 1], 1)
  if not (i and count) or i > n or count > 1000 or at + 1 + count > #ARGV then
    return redis.error_reply('ERR ack: bad arguments')
  end
  groups[#groups + 1] = { i = i, at = at + 2, count = count }
  at = at + 2 + count
end
local now = time()
local totals, rejected = open_ledger(ledger, key)
if not totals then
  return rejected
end
local again = redis.call('HLEN', attempts) > 0
local read, copied = 0, 0
local result = { now }

local function serve(g)
  local base = 7 + 4 * (g.i - 1)
  local k = { lease = lease, attempts = attempts, delay = delay, tombstones = tombstones,
    r = KEYS[base], j = KEYS[base + 1], d = KEYS[base + 2], u = KEYS[base + 3] }
  local name, keep = names[g.i], keeps[g.i]
  local before = redis.pcall('HLEN', k.j)
  if foreign(before) then
    return nil
  end
  if keep and foreign(redis.pcall('ZADD', keep.until_ms, 'XX', '0', '0')) then
    keep = nil -- a full store takes acks, and keeps nothing more; so does a key of another type
  end
  local seqs, members, ids, results, quick, seen, deleted, undone, records = {}, {}, {}, {}, true, {}, {}, {}, {}
  for x = 1, g.count do
    if keep and copied >= 1048576 then
      break
    end
    local seq, id = ARGV[g.at + x - 1], false
    if string.find(seq, ':', 1, true) then
      local mark
      seq, mark, id, results[x] = string.match(seq, '^(.-)(!*):([^ ]*) ?(.*)$')
      id = id ~= '' and id
      deleted[x], undone[x] = mark ~= '', ({ ['!!'] = 'deleted', ['!!!'] = 'moved' })[mark]
      quick = quick and mark ~= '!!!'
    end
    if seen[seq] then
      quick = false
    end
    seen[seq] = true
    seqs[x], members[x], ids[x] = seq, seq .. ' ' .. name, id
    if keep and not deleted[x] then
      records[x] = redis.call('HGET', k.j, seq)
      copied = copied + #(records[x] or '')
    end
  end
  local count = #seqs
  if count == 0 then
    return {}
  end
  local claims = keep and again and redis.call('HMGET', attempts, unpack(members)) or {}
  -- Jobs that are leased, the usual ones, go by one command for all. The first write of
  -- the call is a ZREM: it needs no memory, so it runs when the store is full.
  if quick and count == 1 then
    quick = redis.call('ZREM', lease, members[1]) == 1
  elseif quick then
    local scores = redis.call('ZMSCORE', lease, unpack(members))
    for x = 1, count do
      if not scores[x] then
        quick = false
      end
    end
    if quick then
      redis.call('ZREM', lease, unpack(members))
    end
  end
  local done, gone = {}, 0
  if quick then
    gone = redis.call('HDEL', k.j, unpack(seqs))
    if again and redis.call('HDEL', attempts, unpack(members)) > 0 then
      drop_errors(k.u, seqs)
    end
    totals.acked = totals.acked + gone
    totals.lost = totals.lost + count - gone
    for x = 1, count do
      if ids[x] then
        drop_id(k.u, ids[x], seqs[x])
      end
      done[x] = 1
      if totals.slots then
        totals.slots.free(name, k.r, seqs[x])
      end
      if totals.ends then
        totals.ends.ended(name, seqs[x], undone[x] or 'acked', results[x])
      end
    end
  else
    -- WITH ends_of, is_over, is_prepared, remove, usable
    if not usable(k.r, k.j, k.d) or foreign(redis.pcall('ZCARD', delay)) or foreign(redis.pcall('HLEN', tombstones)) then
      return nil
    end
    for x = 1, count do
      local record = read < 1048576 and redis.call('HGET', k.j, seqs[x]) or ''
      read = read + #record
      local over = is_over(record, now)
      local prepared = totals.ends and not over and is_prepared(delay, members[x])
      local state, claimed
      if not prepared then
        state, claimed = remove(k, totals, name, seqs[x], ids[x])
      end
      done[x] = prepared and 3 or 0
      gone = gone + (state and 1 or 0)
      if over and (state == 'ready' or state == 'delayed') then
        totals.expired = totals.expired + 1
        if totals.ends then
          totals.ends.ended(name, seqs[x], 'expired')
        end
      elseif state then
        local class = claimed and undone[x] ~= 'moved' and 'acked' or 'deleted'
        totals[class] = totals[class] + 1
        done[x] = class == 'acked' and 1 or 2
        if totals.ends then
          totals.ends.ended(name, seqs[x], undone[x] or class, results[x])
        end
      end
    end
  end
  if keep then
    -- WITH drop_kept, forget_kept, keep_acked
    local kept = {}
    for x = 1, count do
      if deleted[x] then
        done[x] = forget_kept(ledger, KEYS[7 + 4 * n], keep, now, seqs[x]) and done[x] == 0 and 2 or done[x]
      elseif done[x] == 1 and records[x] then
        kept[#kept + 1] = { seqs[x], records[x], tonumber(claims[x] or 1) or 1, results[x] or '' }
      end
    end
    if #kept > 0 then
      keep_acked(ledger, KEYS[7 + 4 * n], keep, now, kept)
    end
  end
  if gone >= before then
    -- WITH forget
    totals.lost = totals.lost + forget(queues, tombstones, k.r, k.j, name)
  end
  return done
end

for _, g in ipairs(groups) do
  local done = serve(g)
  for x = 1, g.count do
    result[#result + 1] = done and (done[x] or -2) or -1
  end
end
close_ledger(ledger, totals)
return result
