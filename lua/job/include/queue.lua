-- open_queue: the keys of a queue, KEYS[at] and the three after it, for a call that
-- pushes to its list. Returns nil where the list has another type.
local function open_queue(at, name)
  if foreign(redis.pcall('LLEN', KEYS[at])) then
    return nil
  end
  return { name = name, r = KEYS[at], j = KEYS[at + 1], d = KEYS[at + 2], u = KEYS[at + 3], head = {}, tail = {} }
end

-- push: put references into the list of a queue of open_queue, those of head before all
-- others and those of tail behind them, each in their order, and wake who waits. Returns
-- whether they are all that the list has.
local function push(command, channel, k)
  local pushed, length = #k.tail + #k.head, 0
  if #k.tail > 0 then
    length = in_pieces(redis.call, 'RPUSH', k.r, k.tail)
  end
  if #k.head > 0 then
    local reversed = {}
    for x = #k.head, 1, -1 do
      reversed[#reversed + 1] = k.head[x]
    end
    length = in_pieces(redis.call, 'LPUSH', k.r, reversed)
  end
  if pushed > 0 then
    wake(command, channel, k.name, length, pushed)
  end
  return pushed > 0 and length == pushed
end

-- put_back: undo the LPOP of ids[from..].
local function put_back(r, ids, from)
  for x = #ids, from, -1 do
    redis.call('LPUSH', r, ids[x])
  end
end

-- wake: tell who waits for a queue that it has jobs again. Only the push that found the
-- list empty tells it: whoever waits found it empty, and asks again. A message that
-- Redis rejects leaves the jobs where they are.
local function wake(command, channel, queue, length, pushed)
  if length == pushed then
    redis.pcall(command, channel .. queue, int(pushed))
  end
end

-- usable: whether the keys of a queue have their types: false once another program wrote
-- there. Reads only, so a script asks before it writes.
local function usable(r, j, d)
  return not (foreign(redis.pcall('LLEN', r)) or foreign(redis.pcall('HLEN', j)) or foreign(redis.pcall('ZCARD', d)))
end

-- skip_tombstones: count down the tombstones of a queue by references that led nowhere and
-- are out of its list, which saves a search in it. Returns how many more there were: those
-- something other than Spillway removed, so they are lost. Once another program has changed
-- a list, as many lost jobs may count as tombstones.
local function skip_tombstones(tombstones, r, queue, missing)
  local left = 1
  if missing > 0 then
    left = redis.call('HINCRBY', tombstones, queue, -missing)
  end
  if left <= 0 or redis.call('LLEN', r) == 0 then
    redis.call('HDEL', tombstones, queue)
  end
  return math.max(0, -left)
end

-- forget: once a queue has no job left, remove all else of it: its place in the index
-- and the references that lead nowhere. Where those are more than its tombstones,
-- something other than Spillway removed jobs: they are lost. A key of another type is
-- left alone. Returns the jobs that are lost.
local function forget(queues, tombstones, r, j, queue)
  if redis.call('HLEN', j) > 0 then
    return 0
  end
  local missing = 0
  local references = redis.pcall('LLEN', r)
  if not foreign(references) and references > 0 then
    local known = redis.pcall('HGET', tombstones, queue)
    missing = math.max(0, references - (not foreign(known) and tonumber(known or 0) or 0))
    redis.call('DEL', r)
  end
  redis.pcall('HDEL', tombstones, queue)
  redis.pcall('ZREM', queues, queue)
  return missing
end
