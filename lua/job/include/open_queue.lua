-- open_queue: the keys of a queue, KEYS[at] and the three after it, for a call that
-- pushes to its list. Returns nil where the list has another type.
local function open_queue(at, name)
  if foreign(redis.pcall('LLEN', KEYS[at])) then
    return nil
  end
  return { name = name, r = KEYS[at], j = KEYS[at + 1], d = KEYS[at + 2], u = KEYS[at + 3], head = {}, tail = {} }
end
