package admin

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestTheOldestAgeOfMetricsIsThatOfTheOldestEntry(t *testing.T) {
	t.Parallel()
	b := newBacklog(t)
	metric := ages{b.sweep.source, b.sweep}
	if n := testutil.CollectAndCount(metric, "spillway_account_oldest_age_seconds"); n != 0 {
		t.Errorf("an age is known before the first pass")
	}
	b.produce(t, 0, 300, func(i int) (int, time.Duration) { return 2, time.Duration(1+i%100) * time.Second })
	b.pass(t)
	age, known := b.sweep.oldestAge("default")
	if !known || age < 100*time.Second || age > 130*time.Second {
		t.Errorf("got %v, %v; want the 100 s of the oldest entry, and what the test took", age, known)
	}
	b.ahead = time.Hour // nothing was read since: an entry that may be gone grows no older
	if later, _ := b.sweep.oldestAge("default"); later != age {
		t.Errorf("the age went from %v to %v without a read", age, later)
	}
	if n := testutil.CollectAndCount(metric); n != 2 {
		t.Errorf("got %d metrics, want the age and max_age", n)
	}
}

func TestTheOldestAgeOfMetricsIsZeroWithoutEntries(t *testing.T) {
	t.Parallel()
	b := newBacklog(t)
	b.pass(t)
	if age, known := b.sweep.oldestAge("default"); !known || age != 0 {
		t.Errorf("got %v, %v; want 0", age, known)
	}
}
