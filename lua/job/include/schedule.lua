-- read_state: the state of a schedule as a table, from its text: 16 words, a '|' and the last runs.
--   rev      rises with each change by a caller        flag     a active, p paused, e ended
--   tag      names the text of the specification       next     its next tick, ms; 0 none
--   till     ticks up to here that are due count as paused; 0 none  waiting  a tick that waits for the run before it, ms; 0 none
--   first count   sequences of the jobs of the last run
--   fired missed overlapped paused unregistered superseded   ticks so far by what became of them
--   ok failed     jobs of its runs that ended acked, or otherwise
-- A run is "<tick ms>,<cause><first>.<count>;", the oldest first. Before them may stand its past and a '!', which only the planner
-- understands. nil where another program wrote the text.
local state_fields = { 'rev', 'flag', 'tag', 'next', 'till', 'waiting', 'first', 'count', 'fired', 'missed', 'overlapped', 'paused',
  'unregistered', 'superseded', 'ok', 'failed' }
local state_form = '^(%d+) ([ape]) (%S+)' .. string.rep(' (%d+)', 13) .. '|(.*)$'
local function read_state(text)
  local words = { string.match(text, state_form) }
  if not words[17] then
    return nil
  end
  local past, runs = string.match(words[17], '^([%d.]*)!(.*)$')
  local s, was = { past = past or '', runs = runs or words[17], words = words }, {}
  for n = 1, 16 do
    local value = words[n]
    if value == '0' then
      value = 0
    elseif n ~= 2 and n ~= 3 then
      value = tonumber(value)
    end
    s[state_fields[n]], was[n] = value, value
  end
  s.was = was
  return s
end

-- write_state: the text of a state, with the last keep runs. It formats only what changed: 16 digits take 1 µs.
local function write_state(s, keep)
  local words, was = s.words or {}, s.was or {}
  for n = 1, 16 do
    local value = s[state_fields[n]]
    if value ~= was[n] then
      words[n] = value
      if n ~= 2 and n ~= 3 then
        words[n] = int(value)
      end
    end
  end
  local runs = s.runs
  if #runs > 33 * keep then -- a run has 33 bytes at least
    local _, count = string.gsub(runs, ';', '')
    while count > keep do
      runs, count = string.match(runs, '^[^;]*;(.*)$'), count - 1
    end
  end
  if s.past ~= '' then
    runs = s.past .. '!' .. runs
  end
  return table.concat(words, ' ', 1, 16) .. '|' .. runs
end

-- add_run: note in a state the jobs that a run published.
local function add_run(s, tick, cause, first, count)
  s.runs = s.runs .. int(tick) .. ',' .. cause .. int(first) .. '.' .. int(count) .. ';'
end

-- is_unfinished: whether a job of a schedule's last run is neither ended nor dead. j and d are of its queue.
local function is_unfinished(s, j, d)
  for seq = s.first, s.first + s.count - 1 do
    local ref = int(seq)
    if redis.call('HEXISTS', j, ref) == 1 and not redis.call('ZSCORE', d, ref) then
      return true
    end
  end
  return false
end

-- open_totals: read what a publish has to know of the ledger, before anything is written. Returns nil and an error where
-- it holds a foreign value, else a table: seq, the next sequence; published; live, the jobs there are; closed, whether the
-- namespace is being deleted.
local function open_totals(ledger, now, now_us)
  local v = redis.call('HMGET', ledger, 'seq', 'published', 'acked', 'expired', 'deleted', 'lost', 'closed')
  for i = 1, 6 do
    v[i] = whole(v[i] or 0, 0)
    if not v[i] then
      return nil, redis.error_reply('ERR the ledger holds a foreign value')
    end
  end
  local totals = { seq = math.max(now_us, v[1] + 1), published = v[2], live = v[2] - v[3] - v[4] - v[5] - v[6], closed = false }
  if (tonumber(v[7] or 0) or 0) > now then
    totals.closed = true
  end
  return totals
end

-- look_at: when the head of a new queue deserves a look: when the ttl of its first record ends, or in an hour.
local function look_at(record, now)
  local ends = ends_of(record) or 0
  if ends == 0 then
    ends = now + 3600000
  end
  return int(math.min(ends, now + 3600000))
end
