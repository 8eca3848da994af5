// Package human writes figures as people say them: for the answers of the admin port and the commands.
package human

import (
	"fmt"
	"time"
)

// Since is a duration as people say it: 850ms, 12.3s, 2m50s, 3h05m, 3m, 2d04h.
func Since(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < 0:
		return "0ms"
	case d < time.Second:
		return fmt.Sprintf("%dms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return two(d, time.Minute, time.Second, "m%02ds", "m")
	case d < 48*time.Hour:
		return two(d, time.Hour, time.Minute, "h%02dm", "h")
	}
	return two(d, 24*time.Hour, time.Hour, "d%02dh", "d")
}

// two writes a duration in two units, or in one if the rest is 0.
func two(d, unit, rest time.Duration, both, one string) string {
	if n := d % unit / rest; n > 0 {
		return fmt.Sprint(int(d/unit)) + fmt.Sprintf(both, n)
	}
	return fmt.Sprint(int(d/unit)) + one
}

// Some is "1 entry" or "2 entries".
func Some(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
