-- mortal: whether bury can run for a queue: false once another program wrote to a key.
local function mortal(k)
  if k.mortal == nil then
    k.mortal = not (foreign(redis.pcall('HLEN', k.j)) or foreign(redis.pcall('ZCARD', k.d)))
  end
  return k.mortal
end
