package admin

import (
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition/drops"
)

func TestTheMakerOfAFloodIsNamedByReason(t *testing.T) {
	t.Parallel()
	now, log := time.Now(), drops.NewLog()
	record := func(namespace string, d drops.Drop) { log.Of(namespace).Record(d) }
	record("kart", drops.Drop{Reason: drops.Evicted, Partition: "old", Entries: 900, At: now.Add(-2 * time.Minute)})
	record("kart", drops.Drop{Reason: drops.Evicted, Partition: "calm", Entries: 5, At: now})
	for range 3 {
		record("kart", drops.Drop{Reason: drops.Evicted, Partition: "flood", Entries: 5, At: now, Detail: "5 entries came at once"})
	}
	record("kart", drops.Drop{Reason: drops.RateLimited, Partition: "calm", Entries: 1, At: now, Detail: "rate_limited: slow down"})
	record("game", drops.Drop{Reason: drops.Unauthorized, Entries: 9, At: now}) // of no partition
	got := makers(log, now)
	if len(got) != 1 || len(got["kart"]) != 2 || got["kart"]["evicted"] != (Maker{"flood", 0.75, "5 entries came at once"}) || got["kart"]["rate_limited"] != (Maker{"calm", 1, ""}) {
		t.Errorf("got %+v", got)
	}
	if got := makers(nil, now); len(got) != 0 {
		t.Errorf("without samples: %+v", got)
	}
}
