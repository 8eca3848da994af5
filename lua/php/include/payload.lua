-- closing: where the last } of a payload is, with nothing but space behind it; nil where it is not.
local function closing(p)
  return string.find(p, '}%s*$', math.max(1, #p - 99)) or string.find(p, '}%s*$')
end

-- digits: how often a payload was delivered, and from where to where it says so. nil where
-- its attempts are not at its end: then only who decodes it knows, which takes Redis
-- a tenth of a second a MiB. So the caller does, and hands their place over, see settle.
--
-- A payload is bytes of a PHP program. Decoding and encoding it would turn [] into {}, and
-- 12345678901234567 into 1.2345678901235e+16, so only the digits are replaced. What begins as an
-- object and ends with attempts is taken for one without decoding it: PHP's libraries write
-- that, and where it is no JSON, its worker says so.
local function digits(p)
  -- In JSON, such bytes are a key and its value, and the last } closes the object itself.
  local tail = string.sub(p, -96)
  local a, b = string.match(tail, '[{,]%s*"attempts"%s*:%s*()%d+()%s*}%s*$')
  if not a then
    a, b = string.match(tail, '[{,]%s*"attempts"%s*:%s*()%d+()%s*,%s*"delay"%s*:%s*%w+%s*}%s*$')
  end
  local value = a and whole(string.sub(tail, a, b - 1), 0)
  if value then
    local skip = #p - #tail
    return value, skip + a, skip + b - 1
  end
end

-- is_object: whether a payload begins and ends as a JSON object.
local function is_object(p)
  return string.find(p, '^%s*{') and closing(p)
end

-- write_digits: a payload with another number from from to to.
local function write_digits(p, from, to, n)
  return string.sub(p, 1, from - 1) .. int(n) .. string.sub(p, to + 1)
end

-- append: a JSON object with one field more at its end. Returns it, and where it differs first.
local function append(p, field)
  local at = closing(p)
  local comma = string.find(p, '^%s*{%s*}') and '' or ','
  return string.sub(p, 1, at - 1) .. comma .. field .. '}', at
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

-- read_letter: why a dead letter died, its payload, and where the digits of its attempts
-- begin, 0 where nobody found them; nil where another program removed it. Behind the reason may
-- stand '+' and the length of the error before the payload, which is told with the reason.
local function read_letter(text)
  local reason, size, from, at = string.match(text or '', '^(%a+)%+?(%d*) (%d+) ()')
  if not reason then
    return nil
  end
  size = tonumber(size) or 0
  local why = string.sub(text, at, at + size - 1)
  return reason, string.sub(text, at + size), tonumber(from), why ~= '' and reason .. ' ' .. why or reason
end
