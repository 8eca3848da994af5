-- rearm: when a range is over, say when the partition next deserves a look: at
-- once when a full batch remains (at the back of the queue, so a hot partition
-- starves nobody), after the linger when less does, never when it is empty.
local function rearm(ready, m, ledger, partition, head, tail, full, now, linger)
  if head == tail then
    die(ready, m, ledger, partition, tail)
  elseif tail - head >= full then
    redis.call('ZADD', ready, int(now), partition)
  else
    redis.call('ZADD', ready, int(now + linger), partition)
  end
end
