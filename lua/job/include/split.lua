-- split: a reference to a job as callers give it: its sequence and, after a colon, the
-- caller's own id where it has one.
local function split(reference)
  local at = string.find(reference, ':', 1, true)
  if at then
    return string.sub(reference, 1, at - 1), string.sub(reference, at + 1)
  end
  return reference, nil
end
