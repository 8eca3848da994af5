-- put_back: undo the LPOP of ids[from..].
local function put_back(r, ids, from)
  for x = #ids, from, -1 do
    redis.call('LPUSH', r, ids[x])
  end
end
