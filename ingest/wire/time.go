package wire

// maxMillisDigits is enough for Unix milliseconds until the year 2286. More digits
// are microseconds or nanoseconds sent by mistake. Rejecting them tells the client;
// accepting them would make every entry stale.
const maxMillisDigits = 13

// ParseMillis reads Unix milliseconds: 1 to 13 decimal digits and nothing else,
// no sign, no fraction, no leading zero.
func ParseMillis[T string | []byte](s T) (ms int64, ok bool) {
	if len(s) == 0 || len(s) > maxMillisDigits || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		ms = ms*10 + int64(s[i]-'0')
	}
	return ms, true
}
