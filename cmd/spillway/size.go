package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written 64MiB, 100MB or 4096.
type Size int

// sizeUnits by size, the biggest first; a plain number of bytes has none.
var sizeUnits = []struct {
	suffix string
	bytes  int
}{
	{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"KB", 1e3}, {"B", 1}, {"", 1},
}

// UnmarshalText reads a size. Units are spelled as above, in any case; a bare
// K or M is refused, because people disagree on what it is.
func (s *Size) UnmarshalText(text []byte) error {
	for _, u := range sizeUnits {
		digits, ok := cutSuffixFold(string(text), u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n > math.MaxInt/u.bytes {
			break
		}
		*s = Size(n * u.bytes)
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
		if n := int(s); n >= u.bytes && n%u.bytes == 0 {
			return strconv.Itoa(n/u.bytes) + u.suffix
		}
	}
	return "0B"
}
