-- keep_done: what done says of [from, to); nil when it says nothing of it.
local function keep_done(done, to, from)
  if not (done and to and from) or to <= from then
    return nil
  end
  done = string.sub(done, -(to - from))
  return string.find(done, '1', 1, true) and done or nil
end
