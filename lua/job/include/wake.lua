-- wake: tell who waits for a queue that it has jobs again. Only the push that found the
-- list empty tells it: whoever waits found it empty, and asks again. A message that
-- Redis refuses leaves the jobs where they are.
local function wake(command, channel, queue, length, pushed)
  if length == pushed then
    redis.pcall(command, channel .. queue, int(pushed))
  end
end
