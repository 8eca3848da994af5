-- remove: take a job out of the state it is in. Returns nil where there is no such job,
-- else its state and whether it was ever claimed. k holds the keys, totals the ledger. A
-- ready job leaves a tombstone, unless the caller knows that the list does not name it.
local function remove(k, totals, queue, seq, id, unlisted)
  local member = seq .. ' ' .. queue
  local leased = redis.call('ZREM', k.lease, member)
  if redis.call('HDEL', k.j, seq) == 0 then
    if leased == 1 then
      totals.lost = totals.lost + 1
      redis.call('HDEL', k.attempts, member)
    end
    return nil
  end
  drop_id(k.u, id, seq)
  local claimed = redis.call('HDEL', k.attempts, member)
  if leased == 1 then
    return 'leased', true
  elseif redis.call('ZREM', k.delay, member) == 1 then
    return 'delayed', claimed == 1
  elseif redis.call('ZREM', k.d, seq) == 1 then
    totals.dead = totals.dead - 1
    return 'dead', true
  end
  if not unlisted then
    redis.call('HINCRBY', k.tombstones, queue, 1)
  end
  return 'ready', claimed == 1
end
