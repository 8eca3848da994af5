package drain

import (
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition"
)

func TestSettlementsOfManyWorkersShareRoundTrips(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.roundTrip = time.Millisecond
		for p := range 64 {
			r.store.produce(r.ns, string(rune('a'+p%26))+string(rune('a'+p/26)), 1, 0)
		}
		r.start()
		r.drained(10 * time.Second)
		r.stop()
		if got := r.store.counts().settle; got > 16 { // workers that the scheduler is slow to run come later
			t.Errorf("%d Settle calls for 64 commits", got)
		}
	})
}

func TestSettlerAnswersWhatComesAfterItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newSettler(newFakeStore())
		go s.run(t.Context())
		s.close()
		w := s.submit(&settleRequest{commit: &partition.Commit{}})
		<-w.done
		if w.err() != errSettlerStopped {
			t.Errorf("got %v", w.err())
		}
	})
}
