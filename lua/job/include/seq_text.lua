-- seq_text: a sequence as text, as int gives it. Sequences come in rising order, so ten
-- of them share all digits but the last, and formatting them is most of a bulk publish.
local seq_tens, seq_prefix
local seq_digits = { [0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9' }
local function seq_text(seq)
  local last = seq % 10
  if seq - last ~= seq_tens then
    seq_tens = seq - last
    seq_prefix = int(seq_tens / 10)
  end
  return seq_prefix .. seq_digits[last]
end
