package clocktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/partition/clocktest"
)

func TestWhatIsDueHasHappenedWhenTheTimeHasPassed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var ended []time.Duration
		for range 2 {
			go func() {
				clocktest.Take(time.Hour)
				ended = append(ended, time.Since(began))
			}()
			clocktest.Pass(time.Hour)
		}
		if len(ended) != 2 || ended[0] != time.Hour || ended[1] != 2*time.Hour {
			t.Errorf("ended after %v", ended)
		}
	})
}

func TestNothingPassesOutsideOfABubble(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(time.Duration){"Pass": clocktest.Pass, "Take": clocktest.Take} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s slept for real", name)
				}
			}()
			wait(time.Nanosecond)
		}()
	}
}
