package partition

import (
	"testing"
	"time"
)

// A letter in a long list takes 1 ms and more, so one goes alone before several go at once.
func TestDiscardTakesAsManyLettersAsTwoMillisecondsAllow(t *testing.T) {
	t.Parallel()
	for _, each := range []time.Duration{10 * time.Microsecond, 300 * time.Microsecond, time.Millisecond, 100 * time.Millisecond} {
		n := 1
		for range 20 {
			took := time.Duration(n) * each
			if took > discardTime && n > 1 {
				t.Errorf("%d letters of %v in one call", n, each)
			}
			n = nextDiscard(n, took)
		}
		if each == 10*time.Microsecond && n != maxCallLeases {
			t.Errorf("%d letters in a call while each takes %v, want %d", n, each, maxCallLeases)
		}
	}
	if n := nextDiscard(64, 10*time.Millisecond); n != 16 {
		t.Errorf("%d letters after a call of 64 that took 10 ms", n)
	}
}
