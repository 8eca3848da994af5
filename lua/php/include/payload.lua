-- closing: where the last } of a payload is, with nothing but space behind it; nil where it is not.
local function closing(p)
  return string.find(p, '}%s*$', math.max(1, #p - 99)) or string.find(p, '}%s*$')
end

-- attempts: how often a payload was delivered, and where it says so. Returns nil where it is
-- no JSON object, else a table: value, and from and to, the place of the digits. Without a
-- place, its attempts is missing or no plain number: write_attempts appends one. first is
-- the value of a payload that names none.
--
-- A payload is bytes of a PHP program. Decoding and encoding it would turn [] into {}, and
-- 12345678901234567 into 1.2345678901235e+16, so only the digits are replaced. What begins as an
-- object and ends with attempts is taken for one without decoding it: PHP's libraries write
-- that, and where it is no JSON, its worker says so.
local function attempts(p, first)
  if not string.find(p, '^%s*{') then
    return nil
  end
  -- In JSON, such bytes are a key and its value, and the last } closes the object itself.
  local tail = string.sub(p, -96)
  local a, b = string.match(tail, '[{,]%s*"attempts"%s*:%s*()%d+()%s*}%s*$')
  if not a then
    a, b = string.match(tail, '[{,]%s*"attempts"%s*:%s*()%d+()%s*,%s*"delay"%s*:%s*%w+%s*}%s*$')
  end
  local value = a and whole(string.sub(tail, a, b - 1), 0)
  if value then
    local skip = #p - #tail
    return { value = value, from = skip + a, to = skip + b - 1 }
  end
  local ok, v = pcall(cjson.decode, p)
  if not ok or type(v) ~= 'table' or not closing(p) then -- cjson stops at a zero byte
    return nil
  end
  value = whole(v.attempts, 0)
  if not value then
    return { value = first }
  end
  -- All places that look like it get a number of their own, and decoding once more tells
  -- which of them counts: the time does not depend on how many there are.
  local places, parts, from = {}, {}, 1
  local i, j = string.find(p, '"attempts"', 1, true)
  while i do
    a, b = string.match(p, '^%s*:%s*()%d+()%s*[,}]', j + 1)
    if a then
      places[#places + 1] = { a, b - 1 }
      parts[#parts + 1] = string.sub(p, from, a - 1) .. '-' .. #places .. '.5'
      from = b
    end
    i, j = string.find(p, '"attempts"', j + 1, true)
  end
  if #places > 0 then
    parts[#parts + 1] = string.sub(p, from)
    ok, v = pcall(cjson.decode, table.concat(parts))
    local place = ok and places[-(tonumber(v.attempts) or 0) - 0.5]
    if place then
      return { value = value, from = place[1], to = place[2] }
    end
  end
  return { value = value }
end

-- append: a JSON object with one field more at its end. Returns it, and where it differs first.
local function append(p, field)
  local at = closing(p)
  local comma = string.find(p, '^%s*{%s*}') and '' or ','
  return string.sub(p, 1, at - 1) .. comma .. field .. '}', at
end

-- write_attempts: a payload with another number of attempts; a is what attempts says of it.
-- Returns it, and where it differs first. Of two fields of a name the last counts.
local function write_attempts(p, a, n)
  if a.from then
    return string.sub(p, 1, a.from - 1) .. int(n) .. string.sub(p, a.to + 1), a.from
  end
  return append(p, '"attempts":' .. int(n))
end

-- counted: a payload with one attempt more; itself where it is no JSON object.
local function counted(p, first)
  local a = attempts(p, first)
  return a and write_attempts(p, a, a.value + 1) or p
end

-- place: add a payload to a sorted set in which it must be alone. Two that are equal in
-- every byte would be one member, and a job would be lost: so the second gets a field of
-- its own, which PHP ignores. Returns the member, and 1 where it was changed, else 0.
local function place(set, score, payload, seq)
  if redis.call('ZADD', set, 'NX', score, payload) == 1 then
    return payload, 0
  end
  local mark, n = seq, 0
  while true do
    local member = append(payload, '"spillway":"' .. mark .. '"')
    if redis.call('ZADD', set, 'NX', score, member) == 1 then
      return member, 1
    end
    n = n + 1
    mark = seq .. '.' .. int(n)
  end
end

-- read_letter: why a dead letter died, and its payload; nil where another program removed it.
local function read_letter(text)
  local at = string.find(text or '', ' ', 1, true)
  if at then
    return string.sub(text, 1, at - 1), string.sub(text, at + 1)
  end
end
