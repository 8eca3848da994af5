package ingest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Quota is a token bucket, written 5000/s, 100/min or 20/h. The burst is Count,
// refilled evenly over Per. The zero Quota is no limit.
type Quota struct {
	Count int
	Per   time.Duration
}

var quotaUnits = []struct {
	text string
	per  time.Duration
}{{"s", time.Second}, {"min", time.Minute}, {"h", time.Hour}}

const maxQuota = 1_000_000_000

// UnmarshalText reads a quota.
func (q *Quota) UnmarshalText(text []byte) error {
	digits, unit, _ := strings.Cut(string(text), "/")
	count, err := strconv.Atoi(digits)
	for _, u := range quotaUnits {
		if err == nil && unit == u.text && count > 0 && count <= maxQuota {
			*q = Quota{count, u.per}
			return nil
		}
	}
	return fmt.Errorf("%q is not a quota: write one such as 5000/s, 100/min or 20/h", text)
}

// String is what UnmarshalText reads.
func (q Quota) String() string {
	for _, u := range quotaUnits {
		if q.Per == u.per {
			return strconv.Itoa(q.Count) + "/" + u.text
		}
	}
	return "none"
}
