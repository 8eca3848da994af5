-- bury: end a leased job whose tries are used up: as a dead letter, or as expired where
-- the queue keeps none or its ttl is over. The caller removes lease and attempts, and has
-- asked mortal before. reason is why: nacked, lapsed or buried; the fraction of the score
-- keeps it. Returns dead, expired or lost.
local death_fractions = { nacked = '.25', lapsed = '.5', buried = '.75' }
local function bury(k, totals, seq, now, keeps, reason)
  local record = redis.call('HGET', k.j, seq)
  local ends = ends_of(record)
  if keeps and ends and (ends == 0 or ends > now) then
    redis.call('ZADD', k.d, int(now) .. death_fractions[reason], seq)
    totals.dead, totals.died = totals.dead + 1, totals.died + 1
    return 'dead'
  end
  redis.call('HDEL', k.j, seq)
  if record then
    drop_id(k.u, caller_id(record), seq)
  end
  local state = ends and 'expired' or 'lost'
  totals[state] = totals[state] + 1
  return state
end
