-- drop_kept: forget acked jobs that a queue keeps, the oldest first: those that are over, and as many as make room; 1,000 at most.
-- q holds the name of the queue and its keys: until, the zset of when its jobs are over, and kept, the hash of the jobs. index is
-- that of the shard. Returns how many are over still.
local function drop_kept(ledger, index, q, now, room)
  local over = redis.call('ZCOUNT', q.until_ms, '-inf', int(now))
  local count = math.min(math.max(over, room), 1000)
  local seqs = count > 0 and redis.call('ZRANGE', q.until_ms, 0, int(count - 1)) or {}
  local fields = {}
  for x, seq in ipairs(seqs) do
    fields[2 * x - 1], fields[2 * x] = seq, '!' .. seq
  end
  in_pieces(redis.call, 'ZREM', q.until_ms, seqs)
  in_pieces(redis.call, 'HDEL', q.kept, fields)
  if #seqs > 0 then
    redis.call('HINCRBY', ledger, 'kept', -#seqs)
  end
  local oldest = redis.call('ZRANGE', q.until_ms, 0, 0, 'WITHSCORES')
  if oldest[2] then
    redis.call('ZADD', index, oldest[2], q.name)
  else
    redis.call('ZREM', index, q.name)
  end
  return math.max(0, over - #seqs)
end

-- forget_kept: forget one acked job that a queue keeps. Returns whether it does.
local function forget_kept(ledger, index, q, now, seq)
  if foreign(redis.pcall('HLEN', q.kept)) or foreign(redis.pcall('ZCARD', index)) or redis.call('ZREM', q.until_ms, seq) == 0 then
    return false
  end
  redis.call('HDEL', q.kept, seq, '!' .. seq)
  redis.call('HINCRBY', ledger, 'kept', -1)
  drop_kept(ledger, index, q, now, 0)
  return true
end

-- keep_acked: keep jobs that were acked for a while, whose queue's rule says so: q also has keep, ms, and all, of the shard.
-- A queue has at most four times what it leaves of those, so none takes the places of the others; its own oldest make room.
-- jobs are tables of sequence, record, attempt and result. Keys of another type keep none.
local function keep_acked(ledger, index, q, now, jobs)
  for _, reply in ipairs({ redis.pcall('ZCARD', q.until_ms), redis.pcall('HLEN', q.kept), redis.pcall('ZCARD', index) }) do
    if foreign(reply) then
      return
    end
  end
  local scores, fields = {}, {}
  for x, job in ipairs(jobs) do
    scores[2 * x - 1], scores[2 * x] = int(now + q.keep), job[1]
    fields[4 * x - 3], fields[4 * x - 2] = job[1], job[2]
    fields[4 * x - 1], fields[4 * x] = '!' .. job[1], int(job[3]) .. ' ' .. int(now) .. ' ' .. job[4]
  end
  in_pieces(redis.call, 'ZADD', q.until_ms, scores)
  in_pieces(redis.call, 'HSET', q.kept, fields)
  local total, held = redis.call('HINCRBY', ledger, 'kept', #jobs), redis.call('ZCARD', q.until_ms)
  drop_kept(ledger, index, q, now, math.max(math.ceil((held - 4 * (q.all - total)) / 5), 0))
end
