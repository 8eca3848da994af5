// Package lineartest tells work that is linear in its bytes from work that is quadratic: eight times the
// bytes may take 24 times as long, since machines are noisy, where quadratic work takes 64 times as long.
package lineartest

import (
	"testing"
	"time"
)

const (
	members = 250 // of the small input
	factor  = 8
	most    = 3 * factor
	quick   = time.Millisecond // is not quadratic: that many members would be looked at four million times
	rounds  = 9                // the best of each size counts, so a pause of the machine does not
)

// Check fails when the work that build makes for an input of so many members is worse than linear.
// Work runs several times.
func Check(tb testing.TB, what string, build func(members int) (work func())) {
	tb.Helper()
	small, large := build(members), build(factor*members)
	best := func(old time.Duration, work func()) time.Duration {
		began := time.Now()
		work()
		return min(old, time.Since(began))
	}
	a, b := time.Hour, time.Hour
	for round := 0; round < rounds || b > quick && b > most*a && round < 5*rounds; round++ {
		a, b = best(a, small), best(b, large)
	}
	if b > quick && b > most*a {
		tb.Errorf("%s: %d members take %v, %d times as many %v", what, members, a, factor, b)
	}
}
