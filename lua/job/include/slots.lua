-- open_slots: give back the slots of leases that end, where the shard has queues whose leases are counted. slots is a key, of which
-- a field is
--   <sequence> <queue>   a lease that counts
--   #<queue>             how many leases the queue has
--   ?<queue>             how to wake those who wait for a slot, once a claim found none: command and beginning of channels
-- A verb names to free each lease that it ends, and calls close last. Where the key has another type nobody is woken, and claim is
-- rejected.
local function open_slots(slots)
  -- WITH read_all, wake
  local names, freed, s = {}, {}, {}

  function s.free(queue, r, seq)
    if not freed[queue] then
      freed[queue] = { r = r }
      names[#names + 1] = queue
    end
    table.insert(freed[queue], seq .. ' ' .. queue)
  end

  -- close reads and writes what all queues need by one command each.
  function s.close()
    local fields, gone, left, seen = {}, {}, {}, {}
    for _, queue in ipairs(names) do
      local f = #fields
      fields[f + 1], fields[f + 2] = '?' .. queue, '#' .. queue
      for x, member in ipairs(freed[queue]) do
        fields[f + 2 + x] = member
      end
    end
    local held = read_all(redis.pcall, 'HMGET', slots, fields)
    if foreign(held) then
      return
    end
    local waiting, at = {}, 1
    for _, queue in ipairs(names) do
      local members, how, ended = freed[queue], held[at], 0
      for x, member in ipairs(members) do
        if held[at + 1 + x] and not seen[member] then
          seen[member], gone[#gone + 1], ended = true, member, ended + 1
        end
      end
      if ended > 0 then
        local used = (tonumber(held[at + 1] or 0) or 0) - ended
        if used > 0 then
          left[#left + 1], left[#left + 2] = fields[at + 1], int(used)
        else
          gone[#gone + 1] = fields[at + 1]
        end
        if how then
          gone[#gone + 1], waiting[#waiting + 1] = fields[at], { queue, members.r, how, ended }
        end
      end
      at = at + 2 + #members
    end
    in_pieces(redis.call, 'HDEL', slots, gone)
    in_pieces(redis.call, 'HSET', slots, left)
    for _, wait in ipairs(waiting) do
      local queue, r, how, ended = unpack(wait)
      local length = redis.pcall('LLEN', r)
      if not foreign(length) and length > 0 then
        wake(string.match(how, '^%S+'), string.match(how, '%S+$'), queue, ended, ended)
      end
    end
  end
  return s
end

-- open_limits: what a claim knows of queues whose leases are counted, and counts for them; its argument are the key of open_slots,
-- and limits: of each i, the queue's number, name, most and how. Returns nil and an error where the key is foreign, else limits by
-- i. Each gets held, once no more may be handed out.
local function open_limits(slots, all)
  -- WITH read_all
  local limits, fields, marks = {}, {}, {}
  for x, limit in ipairs(all) do
    fields[x] = '#' .. limit.name
  end
  local known = read_all(redis.pcall, 'HMGET', slots, fields)
  if foreign(known) then
    return nil, known
  end
  for x, limit in ipairs(all) do
    limit.used, limit.more = tonumber(known[x] or 0) or 0, 0 -- leases, and those of this call
    limits[limit.i] = limit
  end

  -- room is how many jobs the limit lets pass, at most want.
  function limits.room(limit, want)
    local room = limit.most - limit.used
    limit.held = room < 1
    return math.min(want, room)
  end

  -- take gives a job, sequence and queue, a slot.
  function limits.take(limit, member)
    limit.used, limit.more = limit.used + 1, limit.more + 1
    marks[#marks + 1], marks[#marks + 2] = member, '+'
  end

  -- write stores what take noted.
  function limits.write(ledger)
    local first = false
    for _, limit in ipairs(all) do
      if limit.more > 0 then
        marks[#marks + 1], marks[#marks + 2] = '#' .. limit.name, int(limit.used)
        first = first or limit.used == limit.more
      end
    end
    if first then
      redis.call('HSET', ledger, 'limited', '1')
    end
    in_pieces(redis.call, 'HSET', slots, marks)
  end

  -- left is what claim tells of left ready jobs, more than 0, where the limit holds some of them.
  function limits.left(limit, left)
    left = math.min(left, math.max(limits.room(limit, left), 1))
    if limit.held then
      redis.call('HSET', slots, '?' .. limit.name, limit.how)
      return -1125899906842624
    end
    return left
  end
  return limits
end

-- open_spare: what the ledger's fields watched and limited ask for, one of which is there: what open_ends and what open_slots
-- returns, each nil where its field is not, or nil, nil and an error. The keys are five behind the n that the verb has by itself:
-- four of open_ends, one of open_slots.
local function open_spare(ledger, watched, limited, n)
  if #KEYS ~= n + 5 then
    return nil, nil, redis.error_reply('SPARE the ends of jobs, or of leases, set something off')
  end
  local ends, slots
  if watched then
    -- WITH open_ends
    local rejected
    ends, rejected = open_ends(ledger, n)
    if rejected then
      return nil, nil, rejected
    end
  end
  if limited then
    -- WITH open_slots
    slots = open_slots(KEYS[n + 5])
  end
  return ends, slots
end
