-- open_slots: give back the slots of leases that end, where the shard has queues whose leases are counted. slots and parked are
-- keys, delay that of delayed jobs. Of slots a field is
--   <sequence> <queue>   + and the group of a lease that counts; ~ and that of a job that waits for a slot of its group
--   #<queue> <group>     how many leases the group has
--   *<queue>             how many groups have any
--   ?<queue>             how to wake those who wait for a slot, once a claim found none: command and beginning of channels
-- A verb names to free each lease that it ends and each job that it takes out of delay, and calls close last. For each slot
-- that makes the oldest job ready that waits for it.
local function open_slots(slots, parked, delay)
  local names, freed, s = {}, {}, {}

  function s.free(queue, r, seq)
    if not freed[queue] then
      freed[queue] = { r = r }
      names[#names + 1] = queue
    end
    table.insert(freed[queue], seq .. ' ' .. queue)
  end

  -- oldest takes the oldest job that waits for a slot of a group. One that got another due time waits no more.
  local function oldest(queue, group)
    local prefix = park_prefix(queue, group)
    for _ = 1, 100 do
      local waits = redis.call('ZRANGE', parked, '[' .. prefix, '(' .. prefix .. ':', 'BYLEX', 'LIMIT', 0, 1)[1]
      if not waits then
        return nil
      end
      local seq = string.sub(waits, #prefix + 1)
      local member = seq .. ' ' .. queue
      local due = tonumber(redis.call('ZSCORE', delay, member) or nil)
      redis.call('ZREM', parked, waits)
      redis.call('HDEL', slots, member)
      if due and due % 1 == 0.5 then
        redis.call('ZREM', delay, seq .. ' ' .. queue)
        return seq
      end
    end
  end

  local function give_back(queue, members)
    local held = read_all('HMGET', slots, members)
    local gone, seen, groups, count, back, ready = {}, {}, {}, {}, 0, 0
    for x, member in ipairs(members) do
      local kind, group = string.match(held[x] or '', '^(.)(.*)$')
      if kind and not seen[member] then
        seen[member] = true
        gone[#gone + 1] = member
        if kind == '~' then
          redis.call('ZREM', parked, park_prefix(queue, group) .. string.match(member, '^%d+'))
        else
          groups[#groups + 1] = not count[group] and group or nil
          count[group] = (count[group] or 0) + 1
          back = back + 1
        end
      end
    end
    in_pieces(redis.call, 'HDEL', slots, gone)
    for _, group in ipairs(groups) do
      if redis.call('HINCRBY', slots, '#' .. queue .. ' ' .. group, -count[group]) <= 0 then
        redis.call('HDEL', slots, '#' .. queue .. ' ' .. group)
        if redis.call('HINCRBY', slots, '*' .. queue, -1) <= 0 then
          redis.call('HDEL', slots, '*' .. queue)
        end
      end
      for _ = 1, count[group] do
        local seq = oldest(queue, group)
        if not seq then
          break
        end
        redis.call('LPUSH', members.r, seq)
        ready = ready + 1
      end
    end
    local how = back > 0 and redis.call('HGET', slots, '?' .. queue)
    if how then
      if ready == 0 and not redis.call('ZRANGE', parked, '[' .. queue .. ' ', '(' .. queue .. '!', 'BYLEX', 'LIMIT', 0, 1)[1] then
        redis.call('HDEL', slots, '?' .. queue)
      end
      local length = redis.pcall('LLEN', members.r)
      if not foreign(length) and length > 0 then
        wake(string.match(how, '^%S+'), string.match(how, '%S+$'), queue, back, back)
      end
    end
  end

  function s.close()
    for _, queue in ipairs(names) do
      give_back(queue, freed[queue])
    end
  end
  return s
end

-- park_prefix: how the member of a job begins that waits for a slot of its group; its sequence follows. A group is any text.
local function park_prefix(queue, group)
  return queue .. ' ' .. #group .. ' ' .. group .. ' '
end

-- open_spare: what the ledger's fields watched and limited ask for: what open_ends and what open_slots returns, each nil where its field
-- is not there, or nil, nil and an error. The keys are seven behind the n that the verb has by itself: four of open_ends, three of
-- open_slots.
local function open_spare(ledger, watched, limited, n)
  if not (watched or limited) then
    return nil
  elseif #KEYS ~= n + 7 then
    return nil, nil, redis.error_reply('SPARE the ends of jobs, or of leases, set something off')
  end
  local ends, slots
  if watched then
    local rejected
    ends, rejected = open_ends(ledger, n)
    if rejected then
      return nil, nil, rejected
    end
  end
  if limited then
    for _, reply in ipairs({ redis.pcall('HLEN', KEYS[n + 5]), redis.pcall('ZCARD', KEYS[n + 6]), redis.pcall('ZCARD', KEYS[n + 7]) }) do
      if foreign(reply) then
        return nil, nil, reply
      end
    end
    slots = open_slots(KEYS[n + 5], KEYS[n + 6], KEYS[n + 7])
  end
  return ends, slots
end
