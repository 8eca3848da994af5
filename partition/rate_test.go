package partition

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/partition/clocktest"
)

func TestRates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Rate{"": {}, "1/s": {1, time.Second}, "1000/min": {1000, time.Minute}, "1000000000/h": {MaxRate, time.Hour}} {
		var got Rate
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want || got.String() != text {
			t.Errorf("%q: got %+v %q, %v", text, got, got.String(), err)
		}
	}
	for _, text := range []string{"x", "1", "0/s", "-1/s", "1/d", "1.5/s", "1000000001/h", "1/s ", "/s", "99999999999999999999/s"} {
		if err := new(Rate).UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "write one such as") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// Whoever can write to Redis chooses these texts.

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
				clocktest.Pass(time.Second)
				alert.observe(good) // some still pass
			}
			if n := lines.Len(); n != 1 {
				t.Fatalf("%v: %d lines while it lasts, want 1", cause, n)
			}
			clocktest.Pass(quietTime)
			alert.observe(good)
			alert.observe(good)
			if all := lines.All(); len(all) != 2 || all[1].Message != "produces work again" {
				t.Errorf("%v: %+v", cause, all)
			}
		})
	}
}
