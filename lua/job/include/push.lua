-- push: put references into the list of a queue of open_queue, those of head before all
-- others and those of tail behind them, each in their order, and wake who waits. Returns
-- whether they are all that the list has.
local function push(command, channel, k)
  local pushed, length = #k.tail + #k.head, 0
  if #k.tail > 0 then
    length = in_pieces(redis.call, 'RPUSH', k.r, k.tail)
  end
  if #k.head > 0 then
    local reversed = {}
    for x = #k.head, 1, -1 do
      reversed[#reversed + 1] = k.head[x]
    end
    length = in_pieces(redis.call, 'LPUSH', k.r, reversed)
  end
  if pushed > 0 then
    wake(command, channel, k.name, length, pushed)
  end
  return pushed > 0 and length == pushed
end
