-- are_flags: whether each of some arguments is 0 or 1.
local function are_flags(...)
  for _, text in ipairs({ ... }) do
    if text ~= '0' and text ~= '1' then
      return false
    end
  end
  return true
end

-- open_account: read the account of a queue, and see that each of its keys has the type that
-- it should have, before anything is written. Returns nil and an error where one has not, or
-- where the account holds a foreign value. Else a table: seq, the last sequence; was, the
-- totals by their names; and what the call adds to each. keys are those of the call.
local key_types = { ready = 'LLEN', delayed = 'ZCARD', reserved = 'ZCARD', notify = 'LLEN', leases = 'ZCARD', held = 'HLEN',
  dead = 'ZCARD', letters = 'HLEN' }
local account_fields = { 'published', 'claimed', 'acked', 'nacked', 'requeued', 'buried', 'unfit', 'lapsed', 'moved', 'twins',
  'unreadable', 'died', 'respawned', 'deleted', 'purged' }
local function open_account(keys)
  local v = redis.pcall('HMGET', keys.account, 'seq', unpack(account_fields))
  if foreign(v) then
    return nil, v
  end
  for name, command in pairs(key_types) do
    local reply = keys[name] and redis.pcall(command, keys[name])
    if foreign(reply) then
      return nil, reply
    end
  end
  local account = { was = {}, names = account_fields }
  for i = 0, #account_fields do
    local value = whole(v[i + 1] or 0, 0)
    if not value or value > 9e15 then
      return nil, redis.error_reply('ERR the account holds a foreign value')
    end
    if i == 0 then
      account.seq = value
    else
      account.was[account_fields[i]], account[account_fields[i]] = value, 0
    end
  end
  return account
end

-- close_account: write the totals that the call changes, and further fields and values.
local function close_account(key, account, ...)
  local changed = { ... }
  for _, name in ipairs(account.names) do
    if account[name] ~= 0 then
      changed[#changed + 1] = name
      changed[#changed + 1] = int(account.was[name] + account[name])
    end
  end
  if #changed > 0 then
    redis.call('HSET', key, unpack(changed))
  end
end

-- push: payloads to the tail of the list, or in front of all others, in their order; and one
-- notification each, by which Laravel's workers wait.
local function push(keys, payloads, in_front)
  if in_front then
    local reversed = {}
    for i = #payloads, 1, -1 do
      reversed[#reversed + 1] = payloads[i]
    end
    in_pieces(redis.call, 'LPUSH', keys.ready, reversed)
  else
    in_pieces(redis.call, 'RPUSH', keys.ready, payloads)
  end
  if keys.notify then
    local ones = {}
    for i = 1, #payloads do
      ones[i] = '1'
    end
    in_pieces(redis.call, 'RPUSH', keys.notify, ones)
  end
end

-- move_due: members of a sorted set whose time has come, to the tail of the list, until they
-- are 256 or 64 KiB: one at a time, since none says its size before it is read. With hard,
-- their attempts are counted now, and those whose digits are not found go there instead.
-- Returns how many.
local function move_due(keys, set, now, hard)
  local ready, moved, bytes = {}, 0, 0
  while moved < 256 and bytes < 65536 do
    local p = redis.call('ZRANGEBYSCORE', set, '-inf', seconds(now), 'LIMIT', moved, 1)[1]
    if not p then
      break
    end
    moved, bytes = moved + 1, bytes + #p
    local value, from, to
    if hard then
      value, from, to = digits(p)
    end
    if value then
      p = write_digits(p, from, to, value + 1)
    end
    local list = hard and not value and is_object(p) and hard or ready
    list[#list + 1] = p
  end
  if moved > 0 then
    redis.call('ZREMRANGEBYRANK', set, 0, moved - 1)
  end
  push(keys, ready)
  return moved
end
