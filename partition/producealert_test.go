package partition

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestRefusedProducesAreALineWhenTheyBeginAndOneWhenTheyEnd(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{ErrFull, fmt.Errorf("%w: %w", ErrUnknown, ErrUnconfirmed)} {
		synctest.Test(t, func(t *testing.T) {
			core, lines := observer.New(zap.InfoLevel)
			tr := &produceAlert{log: zap.New(core)}
			good, bad := []*Group{{}}, []*Group{{}, {Err: cause}}
			tr.observe(good)
			for range 100 {
				tr.observe(bad)
				time.Sleep(time.Second)
				tr.observe(good) // some still pass
			}
			if n := lines.Len(); n != 1 {
				t.Fatalf("%v: %d lines while it lasts, want 1", cause, n)
			}
			time.Sleep(quietTime)
			tr.observe(good)
			tr.observe(good)
			if all := lines.All(); len(all) != 2 || all[1].Message != "produces are taken again" {
				t.Errorf("%v: %+v", cause, all)
			}
		})
	}
}
