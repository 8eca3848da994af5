-- open_slots: give back the slots of leases that end, where the shard has queues whose leases are counted. slots and parked are
-- keys, delay that of delayed jobs. Of slots a field is
--   <sequence> <queue>   + and the group of a lease that counts; ~ and that of a job that waits for a slot of its group; ! and that
--                        of one that waited and is ready: where it ends unclaimed, the next gets the slot
--   #<queue> <group>     how many leases the group has
--   @<queue>             how many groups have any, but for the one without a name, which is all of a limit that is not one of groups
--   ?<queue>             how to wake those who wait for a slot, once a claim found none: command and beginning of channels
-- A verb names to free each lease that it ends, each job that it takes out of delay and each ready one that it ends, and calls
-- close last. For each slot
-- that makes the oldest job ready that waits for it. Where one of the keys has another type nobody waits, and claim is rejected.
local function open_slots(slots, parked, delay)
  -- WITH read_all, wake, park_prefix
  local names, freed, s, patience = {}, {}, {}, 1000

  function s.free(queue, r, seq)
    if not freed[queue] then
      freed[queue] = { r = r }
      names[#names + 1] = queue
    end
    table.insert(freed[queue], seq .. ' ' .. queue)
  end

  -- oldest takes the oldest job that waits for a slot of a group. One that got another due time waits no more.
  function s.oldest(queue, group)
    local prefix = park_prefix(queue, group)
    while patience > 0 do
      local waits = redis.pcall('ZRANGE', parked, '[' .. prefix, '(' .. prefix .. ':', 'BYLEX', 'LIMIT', 0, 1)[1]
      if not waits then
        return nil
      end
      local seq = string.sub(waits, #prefix + 1)
      local member = seq .. ' ' .. queue
      local score = redis.pcall('ZSCORE', delay, member)
      local due = not foreign(score) and tonumber(score or nil)
      redis.call('ZREM', parked, waits)
      if due and due % 1 == 0.5 then
        redis.call('ZREM', delay, member)
        redis.call('HSET', slots, member, '!' .. group)
        return seq
      end
      redis.call('HDEL', slots, member)
      patience = patience - 1
    end
  end

  -- pass gives the slots of a queue to those who wait: so many back of each group to the oldest jobs of it, and all to the claims.
  local function pass(queue, r, how, groups, back)
    local all, ready, length = 0, 0, redis.pcall('LLEN', r)
    if foreign(length) then
      return
    end
    for _, group in ipairs(groups) do
      all = all + back[group]
      for _ = 1, back[group] do
        local seq = s.oldest(queue, group)
        if not seq then
          break
        end
        redis.call('LPUSH', r, seq)
        ready = ready + 1
      end
    end
    if ready == 0 and not redis.pcall('ZRANGE', parked, '[' .. queue .. ' ', '(' .. queue .. '!', 'BYLEX', 'LIMIT', 0, 1)[1] then
      redis.call('HDEL', slots, '?' .. queue)
    end
    if length + ready > 0 then
      wake(string.match(how, '^%S+'), string.match(how, '%S+$'), queue, all, all)
    end
  end

  -- close reads and writes what all queues need by one command each, but for groups with a name and those who wait.
  function s.close()
    local fields, gone, left, waiting, seen = {}, {}, {}, {}, {}
    for _, queue in ipairs(names) do
      local f = #fields
      fields[f + 1], fields[f + 2] = '?' .. queue, '#' .. queue .. ' '
      for x, member in ipairs(freed[queue]) do
        fields[f + 2 + x] = member
      end
    end
    local held = read_all(redis.pcall, 'HMGET', slots, fields)
    if foreign(held) then
      return
    end

    -- lower counts some leases less; used is how many there were. Returns whether none are left.
    local function lower(field, used, leases)
      used = (tonumber(used or 0) or 0) - leases
      if used > 0 then
        left[#left + 1], left[#left + 2] = field, int(used)
      else
        gone[#gone + 1] = field
      end
      return used <= 0
    end

    local at = 1
    for _, queue in ipairs(names) do
      local members, how, used, plain = freed[queue], held[at], held[at + 1], 0
      local groups, back, count = {}, {}, {} -- groups in their order; of each, the slots that come back, and how many are of leases
      for x, member in ipairs(members) do
        local kind = held[at + 1 + x]
        if kind and not seen[member] then
          seen[member], gone[#gone + 1] = true, member
          if kind == '+' and not how then -- nobody waits
            plain = plain + 1
          else
            local group = string.sub(kind, 2)
            kind = string.sub(kind, 1, 1)
            if kind == '~' then
              redis.pcall('ZREM', parked, park_prefix(queue, group) .. string.match(member, '^%d+'))
            else
              groups[#groups + 1] = not back[group] and group or nil
              back[group] = (back[group] or 0) + 1
              count[group] = (count[group] or 0) + (kind == '+' and 1 or 0)
            end
          end
        end
      end
      if plain > 0 then
        lower(fields[at + 1], used, plain)
      end
      local ended = 0
      for _, group in ipairs(groups) do
        local field = '#' .. queue .. ' ' .. group
        if count[group] > 0 and lower(field, group == '' and used or redis.call('HGET', slots, field), count[group]) and group ~= '' then
          ended = ended + 1
        end
      end
      if ended > 0 then
        lower('@' .. queue, redis.call('HGET', slots, '@' .. queue), ended)
      end
      if how and groups[1] then
        waiting[#waiting + 1] = { queue, members.r, how, groups, back }
      end
      at = at + 2 + #members
    end
    in_pieces(redis.call, 'HDEL', slots, gone)
    in_pieces(redis.call, 'HSET', slots, left)
    for _, wait in ipairs(waiting) do
      pass(unpack(wait))
    end
  end
  return s
end

-- park_prefix: how the member of a job begins that waits for a slot of its group; its sequence follows. A group is any text.
local function park_prefix(queue, group)
  return queue .. ' ' .. #group .. ' ' .. group .. ' '
end

-- group_text: the group of a job, by its record and the attribute of the limit.
local function group_text(record, by)
  local size, from = string.match(record, '^%d+ %d+@?[%w_-]*#(%d+),()')
  local good, attributes = pcall(cjson.decode, size and string.sub(record, from, from + size - 1) or '')
  local value = good and type(attributes) == 'table' and attributes[by]
  local text = type(value) == 'string' and value or ''
  if #text > 64 then -- it is written for each job that waits
    text = 'sha1:' .. redis.sha1hex(text)
  end
  return text
end

-- look_again: when promote looks at a job that waits for a slot, as delay has it: within 5 minutes, and not at all of them at once.
local function look_again(now, seq)
  return int(now + 150000 + tonumber(seq) % 150000) .. '.5'
end

-- open_limits: what a claim knows of queues whose leases are counted, and counts for them; its argument are the keys of open_slots,
-- and limits: of each i, the queue's number, name, most, how, and by, which is an attribute or empty. Returns nil and an error where
-- a key is foreign, else limits by i. Each is also the group without a name: text, used, and more, the leases of this call. It gets
-- held, once no more may be handed out.
local function open_limits(slots, parked, delay, all)
  -- WITH group_text, look_again, park_prefix, read_all
  local limits, fields, grouped = {}, {}, {}
  local waits, places, marks = {}, {}, {} -- of jobs whose group is full: for delay and for parked; of those and of leases: for slots
  for x, limit in ipairs(all) do
    fields[x] = '#' .. limit.name .. ' '
    grouped[#grouped + 1] = limit.by ~= '' and limit or nil
  end
  for x, limit in ipairs(grouped) do
    fields[#all + x] = '@' .. limit.name
  end
  local known = read_all(redis.pcall, 'HMGET', slots, fields)
  for _, reply in ipairs({ known, grouped[1] and redis.pcall('ZCARD', parked), grouped[1] and redis.pcall('ZCARD', delay) }) do
    if reply and foreign(reply) then
      return nil, reply
    end
  end
  for x, limit in ipairs(all) do
    limit.text, limit.field, limit.used, limit.more = '', fields[x], tonumber(known[x] or 0) or 0, 0
    limits[limit.i] = limit
  end
  for x, limit in ipairs(grouped) do
    limit.groups, limit.known = { [''] = limit }, tonumber(known[#all + x] or 0) or 0 -- groups that have leases
  end

  -- room is how many jobs the limit lets pass, at most want; those of groups are judged one by one.
  function limits.room(limit, want)
    if limit.groups then
      return want
    end
    local room = limit.most - limit.used
    limit.held = room < 1
    return math.min(want, room)
  end

  -- group is that of a job, by its record. The limit is held where there are too many groups.
  function limits.group(limit, record)
    if not limit.groups then
      return limit
    end
    local text = group_text(record, limit.by)
    local group = limit.groups[text]
    if not group then
      local field = '#' .. limit.name .. ' ' .. text
      group = { text = text, field = field, used = tonumber(redis.call('HGET', slots, field) or 0) or 0, more = 0 }
      limit.groups[text] = group
    end
    limit.held = limit.held or group ~= limit and group.used == 0 and limit.known >= 10000
    return group
  end

  -- take gives a job, sequence and queue, a slot of its group. Returns false where the group is full: then the job waits.
  function limits.take(limit, group, member, now)
    if group.used >= limit.most then
      limit.waited = true -- somebody waits for a slot
      local seq = string.match(member, '^%d+')
      waits[#waits + 1], waits[#waits + 2] = look_again(now, seq), member
      places[#places + 1], places[#places + 2] = '0', park_prefix(limit.name, group.text) .. seq
      marks[#marks + 1], marks[#marks + 2] = member, '~' .. group.text
      return false
    end
    if group.used == 0 and group ~= limit then
      limit.known, limit.grows = limit.known + 1, true
    end
    group.used, group.more = group.used + 1, group.more + 1
    marks[#marks + 1], marks[#marks + 2] = member, '+' .. group.text
    return true
  end

  -- write stores what take noted.
  function limits.write(ledger)
    local first = false
    local function count(group)
      if group.more > 0 then
        marks[#marks + 1], marks[#marks + 2] = group.field, int(group.used)
        first = first or group.used == group.more
      end
    end
    for _, limit in ipairs(all) do
      if limit.groups then
        for _, group in pairs(limit.groups) do
          count(group)
        end
      else
        count(limit)
      end
      if limit.grows then
        marks[#marks + 1], marks[#marks + 2] = '@' .. limit.name, int(limit.known)
      end
      if limit.waited then
        marks[#marks + 1], marks[#marks + 2] = '?' .. limit.name, limit.how
      end
    end
    if first then
      redis.call('HSET', ledger, 'limited', '1')
    end
    in_pieces(redis.call, 'ZADD', delay, waits)
    in_pieces(redis.call, 'ZADD', parked, places)
    in_pieces(redis.call, 'HSET', slots, marks)
  end

  -- left is what claim tells of left ready jobs, more than 0, where the limit holds some of them.
  function limits.left(limit, left)
    if not limit.groups then
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
    -- WITH open_slots
    slots = open_slots(KEYS[n + 5], KEYS[n + 6], KEYS[n + 7])
  end
  return ends, slots
end
