-- whole: an argument as a whole number that a double holds exactly, at least
-- minimum; nil where it is anything else (1.5, nan, inf, text).
local function whole(text, minimum)
  local n = tonumber(text)
  if n and n >= minimum and n < 9007199254740992 and n == math.floor(n) then
    return n
  end
  return nil
end

-- int: a whole number as text. tostring and .. use %.14g, which breaks sequences
-- (16 digits).
local function int(x)
  return string.format('%.0f', x)
end

-- time: the store's clock in ms and µs since 1970. A script reads it once, because
-- Redis 7.0 does not freeze it while a script runs.
local function time()
  local t = redis.call('TIME')
  local s, us = tonumber(t[1]), tonumber(t[2])
  return s * 1000 + math.floor(us / 1000), s * 1000000 + us
end
