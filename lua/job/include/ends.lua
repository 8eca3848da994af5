-- open_ends: what the ends of the shard's jobs set off, where any of them does: a follow-up in the queue that on_end names,
-- or a count of its schedule. The keys of it are four behind the n that the verb has by itself, a hash of what is set off, that
-- of states of schedules, and list and hash of the outbox. Returns nil and an error where one is foreign.
local function open_ends(ledger, n)
  local on_end, states, list, jobs = KEYS[n + 1], KEYS[n + 2], KEYS[n + 3], KEYS[n + 4]
  for _, reply in ipairs({ redis.pcall('HLEN', on_end), redis.pcall('HLEN', states), redis.pcall('LLEN', list),
    redis.pcall('HLEN', jobs) }) do
    if foreign(reply) then
      return nil, reply
    end
  end
  local told, e = {}, { on_end = on_end }

  -- ended: a job became acked, dead, expired, deleted, lost or moved. A lost one sets nothing off but its count, nor does a moved one,
  -- whose new job has the follow-up.
  function e.ended(queue, seq, outcome, result)
    local member = seq .. ' ' .. queue
    local watch = redis.call('HGET', on_end, member)
    if not watch then
      return
    end
    redis.call('HDEL', on_end, member)
    local to, id
    for kind, what in string.gmatch(watch, '(%a)([^\n]*)\n') do
      if kind == 'q' then
        to = what
      elseif kind == 'c' then
        id = what
      elseif kind == 'w' then
        local command, channel = string.match(what, '^(s?publish) (.+)$')
        if command then
          redis.pcall(command, channel, seq)
        end
      elseif kind == 's' then
        local name = what .. ' ' .. queue
        -- As read_state and write_state would, which all verbs that end jobs would then make anew in every call.
        local text = redis.call('HGET', states, name) or ''
        local words, ok, failed, runs = string.match(text, '^(%d+ [ape] [^|]*) (%d+) (%d+)(|.*)$')
        if words and outcome == 'acked' then
          ok = int(ok + 1)
        elseif words then
          failed = int(failed + 1)
        end
        if words then
          redis.call('HSET', states, name, words .. ' ' .. ok .. ' ' .. failed .. runs)
        end
      end
    end
    if to and outcome ~= 'lost' and outcome ~= 'moved' then
      told[#told + 1] = table.concat({ to, queue, seq, id or '', outcome, result or '' }, '\n')
    end
  end

  -- ask: the publisher of a prepared job did not decide in time, and is asked by a follow-up, each time after a pause
  -- twice as long, an hour at most. Returns that pause, nil where it was asked often enough.
  function e.ask(queue, seq)
    local member = seq .. ' ' .. queue
    local text = redis.call('HGET', on_end, member) or ''
    local pause, times, rest, to = string.match(text, '^p(%d+) (%d+)( %d+ ([^\n]*)\n.*)$')
    if not pause or times == '0' then
      return nil
    end
    pause = math.max(tonumber(pause), math.min(2 * pause, 3600000))
    redis.call('HSET', on_end, member, 'p' .. int(pause) .. ' ' .. int(times - 1) .. rest)
    told[#told + 1] = table.concat({ to, queue, seq, string.match(text, '\nc([^\n]*)') or '', 'prepared', '' }, '\n')
    return pause
  end

  -- tell: put the follow-ups into the outbox. They are jobs of the shard, and count as published. Their tries last as long as
  -- their queue may have no room.
  function e.tell()
    if #told == 0 then
      return
    end
    local now, now_us = time()
    local v = redis.call('HMGET', ledger, 'seq', 'published')
    local first = math.max(now_us, (tonumber(v[1] or 0) or 0) + 1)
    local refs, fields = {}, {}
    for x, text in ipairs(told) do
      refs[x] = int(first + x - 1)
      fields[2 * x - 1], fields[2 * x] = refs[x], '0000000000000 2000000000 ' .. int(now) .. '\n' .. text
    end
    redis.call('HSET', ledger, 'seq', refs[#refs], 'published', int((tonumber(v[2] or 0) or 0) + #refs))
    in_pieces(redis.call, 'HSET', jobs, fields)
    in_pieces(redis.call, 'RPUSH', list, refs)
  end
  return e
end

-- watch_jobs: note in the ledger that ends of jobs of the shard set something off.
local function watch_jobs(ledger)
  redis.call('HSET', ledger, 'watched', '1')
end

-- await_end: note, where there is a command that tells it, that somebody waits for the end of a job. All who do share the note,
-- which the end removes.
local function await_end(ledger, on_end, member, tell)
  if not tell then
    return
  end
  local watch = redis.pcall('HGET', on_end, member)
  if foreign(watch) or string.find('\n' .. (watch or ''), '\nw', 1, true) or foreign(redis.pcall('HSET', ledger, 'watched', '1')) then
    return
  end
  redis.pcall('HSET', on_end, member, (watch or '') .. 'w' .. tell .. '\n')
end
