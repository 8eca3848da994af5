-- open_slots: give back the slots of leases that end, where the shard has queues whose leases are counted. slots and parked are
-- keys, delay that of delayed jobs. Of slots a field is
--   <sequence> <queue>   + and the group of a lease that counts; ~ and that of a job that waits for a slot of its group; ! and that
--                        of one that waited and is ready: where it ends unclaimed, the next gets the slot
--   #<queue> <group>     how many leases the group has
--   *<queue>             how many groups have any
--   ?<queue>             how to wake those who wait for a slot, once a claim found none: command and beginning of channels
-- A verb names to free each lease that it ends, each job that it takes out of delay and each ready one that it ends, and calls
-- close last. For each slot
-- that makes the oldest job ready that waits for it.
local function open_slots(slots, parked, delay)
  -- WITH read_all, wake, park_prefix
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
      if due and due % 1 == 0.5 then
        redis.call('ZREM', delay, member)
        redis.call('HSET', slots, member, '!' .. group)
        return seq
      end
      redis.call('HDEL', slots, member)
    end
  end

  local function give_back(queue, members)
    members[#members + 1] = '?' .. queue
    local held = read_all('HMGET', slots, members)
    local how = held[#members]
    members[#members] = nil
    local gone, seen, groups, count, passed, back, ready = {}, {}, {}, {}, {}, 0, 0
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
          passed[group] = (passed[group] or 0) + (kind == '!' and 1 or 0)
          back = back + 1
        end
      end
    end
    in_pieces(redis.call, 'HDEL', slots, gone)
    for _, group in ipairs(groups) do
      local leases = count[group] - passed[group]
      if leases > 0 and redis.call('HINCRBY', slots, '#' .. queue .. ' ' .. group, -leases) <= 0 then
        redis.call('HDEL', slots, '#' .. queue .. ' ' .. group)
        if redis.call('HINCRBY', slots, '*' .. queue, -1) <= 0 then
          redis.call('HDEL', slots, '*' .. queue)
        end
      end
      for _ = 1, how and count[group] or 0 do -- without how nobody waits
        local seq = oldest(queue, group)
        if not seq then
          break
        end
        redis.call('LPUSH', members.r, seq)
        ready = ready + 1
      end
    end
    if how and back > 0 then
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

-- open_limits: what a claim knows of queues whose leases are counted, and counts for them; its argument are the keys of open_slots.
-- limits[i] is the limit of the queue i: most leases, of the queue or of each group, and held, once no more may be handed out.
local function open_limits(slots, parked, delay)
  -- WITH park_prefix
  local limits, all = { waiting = 0 }, {}
  local waits, places, marks = {}, {}, {} -- of jobs whose group is full: for delay and for parked; of those and of leases: for slots

  -- add notes the limit of a queue. by is the attribute whose values are groups, or empty. Returns an error where a key is foreign.
  function limits.add(i, name, most, how, by)
    local known = redis.pcall('HMGET', slots, '*' .. name, '#' .. name .. ' ')
    local grouped = by ~= ''
    for _, reply in ipairs({ known, grouped and redis.pcall('ZCARD', parked), grouped and redis.pcall('ZCARD', delay) }) do
      if reply and foreign(reply) then
        return reply
      end
    end
    local limit = { name = name, most = tonumber(most), how = how, by = by }
    limit.known = tonumber(known[1] or 0) or 0 -- groups that have leases
    limit.first = limit.known == 0
    limit.groups = { [''] = { text = '', used = tonumber(known[2] or 0) or 0, more = 0 } }
    limits[i], all[#all + 1] = limit, limit
  end

  -- room is how many jobs the limit lets pass, at most want; those of groups are judged one by one.
  function limits.room(limit, want)
    if limit.by ~= '' then
      return want
    end
    local room = limit.most - limit.groups[''].used
    limit.held = room < 1
    return math.min(want, room)
  end

  -- group is that of a job, by its record. The limit is held where there are too many groups.
  function limits.group(limit, record)
    local text = ''
    if limit.by ~= '' then
      local size, from = string.match(record, '^%d+ %d+@?[%w_-]*#(%d+),()')
      local good, attributes = pcall(cjson.decode, size and string.sub(record, from, from + size - 1) or '')
      local value = good and type(attributes) == 'table' and attributes[limit.by]
      text = type(value) == 'string' and value or ''
    end
    local group = limit.groups[text]
    if not group then
      group = { text = text, used = tonumber(redis.call('HGET', slots, '#' .. limit.name .. ' ' .. text) or 0) or 0, more = 0 }
      limit.groups[text] = group
    end
    limit.held = limit.held or group.used == 0 and limit.known >= 10000
    return group
  end

  -- take gives a job a slot of its group. Returns false where the group is full: then the job waits.
  function limits.take(limit, group, seq, now)
    local member = seq .. ' ' .. limit.name
    if group.used >= limit.most then
      limit.waited = true -- somebody waits for a slot
      waits[#waits + 1], waits[#waits + 2] = int(now + 300000) .. '.5', member
      places[#places + 1], places[#places + 2] = '0', park_prefix(limit.name, group.text) .. seq
      marks[#marks + 1], marks[#marks + 2] = member, '~' .. group.text
      limits.waiting = limits.waiting + 1
      return false
    end
    if group.used == 0 then
      limit.known = limit.known + 1
    end
    group.used, group.more = group.used + 1, group.more + 1
    marks[#marks + 1], marks[#marks + 2] = member, '+' .. group.text
    return true
  end

  -- write stores what take noted.
  function limits.write(ledger)
    for _, limit in ipairs(all) do
      for text, group in pairs(limit.groups) do
        if group.more > 0 then
          marks[#marks + 1], marks[#marks + 2] = '#' .. limit.name .. ' ' .. text, int(group.used)
          limit.grows = limit.grows or group.used == group.more
        end
      end
      if limit.grows then
        marks[#marks + 1], marks[#marks + 2] = '*' .. limit.name, int(limit.known)
      end
      if limit.waited then
        marks[#marks + 1], marks[#marks + 2] = '?' .. limit.name, limit.how
      end
      if limit.grows and limit.first and redis.call('HSETNX', ledger, 'limited', '1') == 1
        and (tonumber(redis.call('HGET', ledger, 'format')) or 5) < 5 then
        redis.call('HSET', ledger, 'format', '5') -- a program from before would end leases and not count down
      end
    end
    in_pieces(redis.call, 'ZADD', delay, waits)
    in_pieces(redis.call, 'ZADD', parked, places)
    in_pieces(redis.call, 'HSET', slots, marks)
  end

  -- left is what claim tells of left ready jobs, more than 0, where the limit holds some of them.
  function limits.left(limit, left)
    if limit.by == '' then
      left = math.min(left, math.max(limits.room(limit, left), 1))
    end
    if limit.held then
      redis.call('HSET', slots, '?' .. limit.name, limit.how)
      return -1125899906842624
    end
    return left
  end
  return limits
end

-- open_spare: what the ledger's fields watched and limited ask for, one of which is there: what open_ends and what open_slots
-- returns, each nil where its field is not, or nil, nil and an error. The keys are seven behind the n that the verb has by itself:
-- four of open_ends, three of open_slots.
local function open_spare(ledger, watched, limited, n)
  if #KEYS ~= n + 7 then
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
    for _, reply in ipairs({ redis.pcall('HLEN', KEYS[n + 5]), redis.pcall('ZCARD', KEYS[n + 6]), redis.pcall('ZCARD', KEYS[n + 7]) }) do
      if foreign(reply) then
        return nil, nil, reply
      end
    end
    -- WITH open_slots
    slots = open_slots(KEYS[n + 5], KEYS[n + 6], KEYS[n + 7])
  end
  return ends, slots
end
