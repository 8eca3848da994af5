-- usable: whether the keys of a queue have their types: false once another program wrote
-- there. Reads only, so a script asks before it writes.
local function usable(r, j, d)
  return not (foreign(redis.pcall('LLEN', r)) or foreign(redis.pcall('HLEN', j)) or foreign(redis.pcall('ZCARD', d)))
end
