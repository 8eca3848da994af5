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
			tr := &trouble{log: zap.New(core)}
			good, bad := []*Group{{}}, []*Group{{}, {Err: cause}}
			tr.judge(good)
			for range 100 {
				tr.judge(bad)
				time.Sleep(time.Second)
				tr.judge(good) // some still pass
			}
			if n := lines.Len(); n != 1 {
				t.Fatalf("%v: %d lines while it lasts, want 1", cause, n)
			}
			time.Sleep(calm)
			tr.judge(good)
			tr.judge(good)
			if all := lines.All(); len(all) != 2 || all[1].Message != "produces are taken again" {
				t.Errorf("%v: %+v", cause, all)
			}
		})
	}
}
