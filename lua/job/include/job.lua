-- seq_text: a sequence as text, as int gives it. Sequences come in rising order, so ten
-- of them share all digits but the last, and formatting them is most of a bulk publish.
local seq_tens, seq_prefix
local seq_digits = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }
local function seq_text(seq)
  local last = seq % 10
  if seq - last ~= seq_tens then
    seq_tens = seq - last
    seq_prefix = int(seq_tens / 10)
  end
  return seq_prefix .. seq_digits[last]
end

-- caller_id: the caller's own id in a record, or nil.
local function caller_id(record)
  return string.match(record, '^%d+ %d+@([%w_-]+)')
end

-- drop_id: forget the caller's id of a job that is gone, unless another job has it now.
local function drop_id(u, id, seq)
  if id and redis.pcall('HGET', u, id) == seq then
    redis.call('HDEL', u, id)
  end
end

-- drop_errors: forget why attempts of jobs failed, and how far they got. Only a job of which attempts knows, or that is dead,
-- has either.
local function drop_errors(u, seqs)
  local fields = {}
  for x, seq in ipairs(seqs) do
    fields[2 * x - 1], fields[2 * x] = '!' .. seq, '%' .. seq
  end
  in_pieces(redis.pcall, 'HDEL', u, fields)
end

-- ends_of: when the ttl of a job ends, ms, 0 = never; nil where another program wrote the record, or there is none.
local function ends_of(record)
  return record and tonumber(string.sub(record, 1, 13)) or nil
end

-- is_over: whether a job has a ttl that ended. Then it exists only as a dead letter, or until its lease is over.
local function is_over(record, now)
  local ends = ends_of(record)
  return ends and ends > 0 and ends <= now
end

-- remove: take a job out of the state it is in. Returns nil where there is no such job,
-- else its state and whether it was ever claimed. k holds the keys, totals the ledger. A
-- ready job leaves a tombstone, unless the caller knows that the list does not name it.
local function remove(k, totals, queue, seq, id, unlisted)
  local member = seq .. ' ' .. queue
  local leased = redis.call('ZREM', k.lease, member)
  if totals.slots then
    totals.slots.free(queue, k.r, seq)
  end
  if redis.call('HDEL', k.j, seq) == 0 then
    if leased == 1 then
      totals.lost = totals.lost + 1
      redis.call('HDEL', k.attempts, member)
      drop_errors(k.u, { seq })
    end
    return nil
  end
  drop_id(k.u, id, seq)
  local claimed = redis.call('HDEL', k.attempts, member)
  if claimed == 1 then
    drop_errors(k.u, { seq })
  end
  if leased == 1 then
    return 'leased', true
  elseif redis.call('ZREM', k.delay, member) == 1 then
    return 'delayed', claimed == 1
  elseif redis.call('ZREM', k.d, seq) == 1 then
    drop_errors(k.u, { seq })
    totals.dead = totals.dead - 1
    return 'dead', true
  end
  if not unlisted then
    redis.call('HINCRBY', k.tombstones, queue, 1)
  end
  return 'ready', claimed == 1
end

-- is_prepared: whether a job waits for its publisher's commit or rollback.
local function is_prepared(delay, member)
  local score = redis.call('ZSCORE', delay, member)
  return score and string.sub(score, 1, 1) == '-'
end

-- mortal: whether bury can run for a queue: false once another program wrote to a key.
local function mortal(k)
  if k.mortal == nil then
    k.mortal = not (foreign(redis.pcall('HLEN', k.j)) or foreign(redis.pcall('ZCARD', k.d)))
  end
  return k.mortal
end

-- death_reason: why a job died, by its score among the dead: 1 nacked, 2 lapsed, 3 buried, 4 undecided, 0 unknown.
local function death_reason(score)
  local fraction = score % 1
  return fraction == 0.125 and 4 or math.floor(fraction * 4)
end

-- rank_after: how many members of a zset come up to one, which may be gone: score, then text, is their order.
local function rank_after(zset, score, member)
  local low = redis.call('ZCOUNT', zset, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', zset, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if redis.call('ZRANGE', zset, int(middle), int(middle))[1] <= member then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- bury: end a leased job whose tries are used up: as a dead letter, or as expired where
-- the queue keeps none or its ttl is over. The caller removes lease and attempts, and has
-- asked mortal before. reason is why: nacked, lapsed, buried or undecided; the fraction of the
-- score keeps it. Returns dead, expired or lost.
local death_fractions = { undecided = '.125', nacked = '.25', lapsed = '.5', buried = '.75' }
local function bury(k, totals, seq, now, keeps, reason)
  local record = redis.call('HGET', k.j, seq)
  local ends = ends_of(record)
  if keeps and ends and (ends == 0 or ends > now) then
    redis.call('ZADD', k.d, int(now) .. death_fractions[reason], seq)
    totals.dead, totals.died = totals.dead + 1, totals.died + 1
    if totals.ends then
      totals.ends.ended(k.name, seq, 'dead')
    end
    return 'dead'
  end
  redis.call('HDEL', k.j, seq)
  if record then
    drop_id(k.u, caller_id(record), seq)
  end
  drop_errors(k.u, { seq })
  local state = ends and 'expired' or 'lost'
  totals[state] = totals[state] + 1
  if totals.ends then
    totals.ends.ended(k.name, seq, state)
  end
  return state
end
