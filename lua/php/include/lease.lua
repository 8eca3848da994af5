-- seconds: ms as a score that PHP compares with whole seconds, such as 1795378123.456.
local function seconds(ms)
  return string.format('%.0f.%03d', math.floor(ms / 1000), ms % 1000)
end

-- deadline_at: when a lease of ours ends, ms. Never with a whole second, as PHP's all do.
local function deadline_at(ms)
  return ms % 1000 == 0 and ms + 1 or ms
end

-- record: what is kept of a payload that is handed out: the member of the reserved set, and
-- what the payload had from at on, where they differ first, but for its last bytes, which are
-- the same: tail is how many; and where in the member the digits of attempts begin. 0: nobody
-- has said it yet, so they are not counted.
local function record(payload, member, at, from, tail)
  local had = string.sub(payload, at, -1 - tail)
  return int(at) .. ' ' .. int(#had) .. ' ' .. int(from) .. ' ' .. int(tail) .. ' ' .. had .. member
end

-- read_lease: what a sequence holds. nil where there is no such lease. Else a table:
--   deadline  ms
--   size      bytes that were read
--   member    of the reserved set; nil where the lease is gone: PHP has moved or reserved it
--             since, so its score is not the one that we wrote
--   at, had, tail, digits  see record
local function read_lease(keys, seq)
  local deadline = tonumber(redis.call('ZSCORE', keys.leases, seq) or nil)
  if not deadline then
    return nil
  end
  local text = redis.call('HGET', keys.held, seq) or ''
  local lease = { deadline = deadline, size = #text }
  local at, length, found, tail, from = string.match(text, '^(%d+) (%d+) (%d+) (%d+) ()')
  at, length = tonumber(at), tonumber(length)
  if at and from + length <= #text then
    local member = string.sub(text, from + length)
    local score = tonumber(redis.call('ZSCORE', keys.reserved, member) or nil)
    if score and math.abs(score * 1000 - deadline) < 0.5 then
      lease.member, lease.digits = member, tonumber(found)
      lease.at, lease.had, lease.tail = at, string.sub(text, from, from + length - 1), tonumber(tail)
    end
  end
  return lease
end

-- original: the payload of a lease as it was before it was handed out.
local function original(lease)
  local member = lease.member
  if lease.at > #member then
    return member
  end
  return string.sub(member, 1, lease.at - 1) .. lease.had .. string.sub(member, #member - lease.tail + 1)
end

-- end_lease: forget a lease, and take its payload out of the reserved set.
local function end_lease(keys, seq, lease)
  if lease.member then
    redis.call('ZREM', keys.reserved, lease.member)
  end
  redis.call('HDEL', keys.held, seq)
  redis.call('ZREM', keys.leases, seq)
end

-- returned: the payload of a lease whose delivery counts, as it goes back. on_release: it is
-- counted now. Whose digits nobody has found was not delivered: it goes back as it was.
local function returned(lease, on_release)
  if lease.digits == 0 then
    return original(lease)
  elseif not on_release then
    return lease.member
  end
  local number = string.match(lease.member, '^%d+', lease.digits)
  return write_digits(lease.member, lease.digits, lease.digits + #number - 1, tonumber(number) + 1)
end

-- lapse: our leases that are over, until they are 256 or have read 64 KiB. What they still
-- hold goes to the tail of the list, as PHP would do. Returns how many, and whether there may
-- be more.
local function lapse(keys, now, on_release)
  local seqs = redis.call('ZRANGEBYSCORE', keys.leases, '-inf', int(now), 'LIMIT', 0, 256)
  local ready, bytes, lapsed = {}, 0, 0
  while lapsed < #seqs and bytes < 65536 do
    lapsed = lapsed + 1
    local lease = read_lease(keys, seqs[lapsed])
    bytes = bytes + lease.size
    end_lease(keys, seqs[lapsed], lease)
    if lease.member then
      ready[#ready + 1] = returned(lease, on_release)
    end
  end
  push(keys, ready)
  return lapsed, lapsed == 256 or lapsed < #seqs
end
