package partition

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes in a configuration, written 64MiB, 100MB or 4096.
type Size int64

// sizeUnits is ordered by size, the largest first. A number without a unit is
// in bytes.
var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"GiB", 1 << 30},
	{"GB", 1e9},
	{"MiB", 1 << 20},
	{"MB", 1e6},
	{"KiB", 1 << 10},
	{"KB",
		1e3},
	{"B", 1},
	{"", 1},
}

// UnmarshalText reads a size. Units may be in upper or lower case. A bare K or M
// is an error, because it means 1000 to some and 1024 to others.
func (s *Size) UnmarshalText(text []byte) error {
	for _, u := range sizeUnits {
		digits, ok := cutSuffixFold(string(text), u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || int64(n) > math.MaxInt64/u.bytes {
			break
		}
		*s = Size(int64(n) * u.bytes)
		return nil
	}
	return fmt.Errorf("%q is not a size: write one such as 64MiB, 100MB or 4096", text)
}

func cutSuffixFold(s, suffix string) (string, bool) {
	at := len(s) - len(suffix)
	if at < 0 || !strings.EqualFold(s[at:], suffix) {
		return s, false
	}
	return s[:at], true
}

// String is the shortest exact spelling.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if n := int64(s); n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return "0B"
}
