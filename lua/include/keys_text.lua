-- keys_text: what read_keys reads.
local function keys_text(ends)
  local all = {}
  for at, n in pairs(ends) do
    all[#all + 1] = int(at) .. ' ' .. int(n)
  end
  return table.concat(all, ' ')
end
