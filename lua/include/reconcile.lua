-- reconcile: restore I1, LLEN = tail - head, after something other than Spillway has
-- changed the list. Entries that vanished are lost; head rises, and from with it where
-- there is a range. Entries that were pushed are accepted. Vanished or evicted entries
-- that the sink has accepted count as delivered; but while a lease goes on and nothing
-- vanished, its holder counts them. Changes p and shard only. Returns true when the
-- caller has to write the hash.
local function reconcile(shard, p, length, leased)
  local missing = p.tail - p.head - length
  local add = shard.add
  local changed = missing ~= 0
  if missing < 0 then
    add.accepted = add.accepted - missing
    p.tail = p.tail - missing
  end
  if p.done and p.to and (missing > 0 or not leased) then
    local evicted = count_done(p.done, p.to, p.to - #p.done, p.head)
    local lost = count_done(p.done, p.to, p.head, p.head + math.max(missing, 0))
    add.delivered = add.delivered + evicted + lost
    add.reclaimed = add.reclaimed + evicted
    add.lost = add.lost - lost
    p.settled = p.settled + evicted
    local left = keep_done(p.done, p.to, p.head + math.max(missing, 0))
    if left ~= p.done then
      p.done = left
      changed = true
    end
  end
  if missing > 0 then
    add.lost = add.lost + missing
    p.settled = p.settled + missing
    p.head = p.head + missing
    if p.from then
      p.from = math.max(p.from, p.head)
    end
  end
  return changed
end
