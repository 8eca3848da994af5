package file

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}, {"", 1},
}

// parseSize reads a positive whole number of bytes such as 100MB or 64MiB.
func parseSize(text string) (int64, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil || n == 0 || int64(n) > math.MaxInt64/u.bytes {
			break
		}
		return int64(n) * u.bytes, nil
	}
	return 0, fmt.Errorf("%q is not a size: want a number of bytes such as 100MB or 64MiB", text)
}
