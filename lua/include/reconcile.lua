-- reconcile: hold I1, LLEN = tail - head, against what other hands did. Entries
-- that vanished are lost and raise head, and from where a range is held: what
-- was lost cannot be taken back. Entries that a stranger pushed are accepted.
-- Returns head, tail and from as they now are.
local function reconcile(m, ledger, head, tail, from, length)
  local missing = tail - head - length
  if missing > 0 then
    redis.call('HINCRBY', ledger, 'lost', int(missing))
    redis.call('HINCRBY', m, 'settled', int(missing))
    head = head + missing
    redis.call('HSET', m, 'head', int(head))
    if from then
      from = math.max(from, head)
      redis.call('HSET', m, 'from', int(from))
    end
  elseif missing < 0 then
    redis.call('HINCRBY', ledger, 'accepted', int(-missing))
    tail = tail - missing
    redis.call('HSET', m, 'tail', int(tail))
  end
  return head, tail, from
end
