-- rearm: when a range is over, say when the partition next deserves a look: at
-- once when a full batch remains (at the back of the queue, so a hot partition
-- starves nobody), when less does at the end of the linger, which counts from
-- since: the time at which what remains began to arrive; never when it is empty.
local function rearm(ready, m, ledger, partition, head, tail, full, now, since, linger)
  if head == tail then
    die(ready, m, ledger, partition, tail)
  elseif tail - head >= full then
    redis.call('ZADD', ready, int(now), partition)
  else
    redis.call('ZADD', ready, int(math.max(now, since + linger)), partition)
  end
end
