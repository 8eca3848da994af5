-- keep_done: the part of done for [from, to); nil when the sink accepted none of it.
local function keep_done(done, to, from)
  if not (done and to and from) or to <= from then
    return nil
  end
  done = string.sub(done, -(to - from))
  return string.find(done, '1', 1, true) and done or nil
end
