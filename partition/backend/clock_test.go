package backend

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/partition/clocktest"
)

func TestClockIsUnknownAtFirst(t *testing.T) {
	t.Parallel()
	var c Clock
	if _, ok := c.Now(); ok {
		t.Error("a clock that saw no reply knows the time")
	}
}

func TestClockFollowsTheStore(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	for name, row := range map[string]struct {
		sent, received time.Duration // of a second reply, after the first
		store          int64         // what it said
		want           int64         // what the clock reads when it came, ±1
	}{
		"a reply that agrees":                  {100 * ms, 101 * ms, 5101, 5101},
		"a slow reply that agrees":             {100 * ms, 900 * ms, 5300, 5900},
		"a slow reply that disagrees a little": {100 * ms, 110 * ms, 5099, 5109},
		"the store is ahead":                   {100 * ms, 101 * ms, 9000, 9000},
		"the store is far ahead, slowly":       {100 * ms, 300 * ms, 9000, 9000},
		"the store stepped back":               {100 * ms, 101 * ms, 2000, 2001},
		"the store stepped back, slowly":       {100 * ms, 300 * ms, 2000, 2200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var c Clock
				began := time.Now()
				c.Observe(began, began, 5000)
				clocktest.Pass(row.sent)
				sent := time.Now()
				clocktest.Pass(row.received - row.sent)
				c.Observe(sent, time.Now(), row.store)
				got, ok := c.Now()
				if !ok || got < row.want-1 || got > row.want+1 {
					t.Errorf("reads %d, want %d", got, row.want)
				}
				clocktest.Pass(time.Hour)
				if later, _ := c.Now(); later != got+time.Hour.Milliseconds() {
					t.Errorf("an hour later it reads %d more", later-got)
				}
			})
		})
	}
}

// Whatever the replies, the clock is never further off than the last round trip took.
func TestClockStaysWithinTheUncertaintyOfItsReplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		began := time.Now()
		store := func() int64 { return time.Since(began).Milliseconds() + 1_700_000_000_000 }
		for i := range 500 {
			sent := time.Now()
			there := time.Duration(i*7919%40) * time.Millisecond
			back := time.Duration(i*104729%40) * time.Millisecond
			clocktest.Pass(there)
			said := store()
			clocktest.Pass(back)
			c.Observe(sent, time.Now(), said)
			if got, _ := c.Now(); got < store()-there.Milliseconds()-back.Milliseconds()-1 || got > store()+there.Milliseconds()+back.Milliseconds()+1 {
				t.Fatalf("reply %d: off by %d ms after %v there and %v back", i, got-store(), there, back)
			}
		}
	})
}
