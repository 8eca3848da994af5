package partition

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rate is how much somebody may do, over all processes: Count in each window of Per. It
// is written 5000/s, 1000/min or 20/h. The zero Rate is no limit.
type Rate struct {
	Count int64
	Per   time.Duration
}

// MaxRate is the highest Count.
const MaxRate = 1_000_000_000

var rateUnits = []struct {
	text string
	per  time.Duration
}{{"s", time.Second}, {"min", time.Minute}, {"h", time.Hour}}

// UnmarshalText reads a rate. The empty text is no limit.
func (r *Rate) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*r = Rate{}
		return nil
	}
	digits, unit, _ := strings.Cut(string(text), "/")
	count, err := strconv.ParseInt(digits, 10, 64)
	for _, u := range rateUnits {
		if err == nil && unit == u.text && count > 0 && count <= MaxRate {
			*r = Rate{count, u.per}
			return nil
		}
	}
	return fmt.Errorf("%q is not a rate: write one such as 5000/s, 1000/min or 20/h", text)
}

// MarshalText writes what UnmarshalText reads.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String is the rate as it is written; empty for no limit.
func (r Rate) String() string {
	for _, u := range rateUnits {
		if r.Per == u.per && r.Count > 0 {
			return strconv.FormatInt(r.Count, 10) + "/" + u.text
		}
	}
	return ""
}

// IsZero reports whether there is no limit.
func (r Rate) IsZero() bool { return r.Count == 0 }
