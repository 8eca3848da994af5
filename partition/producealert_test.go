package partition

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestFailingProducesAreLoggedOnceWhenTheyBeginAndOnceWhenTheyEnd(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{ErrFull, fmt.Errorf("%w: %w", ErrUnknown, ErrUnconfirmed)} {
		synctest.Test(t, func(t *testing.T) {
			core, lines := observer.New(zap.InfoLevel)
			alert := newProduceAlert(zap.New(core))
			good, bad := []*Group{{}}, []*Group{{}, {Err: cause}}
			alert.observe(good)
			for range 100 {
				alert.observe(bad)
				time.Sleep(time.Second)
				alert.observe(good) // some still pass
			}
			if n := lines.Len(); n != 1 {
				t.Fatalf("%v: %d lines while it lasts, want 1", cause, n)
			}
			time.Sleep(quietTime)
			alert.observe(good)
			alert.observe(good)
			if all := lines.All(); len(all) != 2 || all[1].Message != "produces work again" {
				t.Errorf("%v: %+v", cause, all)
			}
		})
	}
}
