package sinktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
)

// Killed writes to an opened sink whose target is killed three times during Writes, and launched
// again. What was not answered comes again in other company, with some that was: a drainer
// that is killed before its commit repeats that. In the end the target must have each of the
// returned number of entries, in 40 partitions, with sequences from 1 and the payload.
func Killed(t *testing.T, s sink.Sink, perBatch int, payload string,
	kill, launch func()) (entries int) {
	t.Helper()
	const partitions, batches, perWrite, kills = 40, 20, 40, 3
	writersAtOnce := s.Caps().MaxInFlight
	payloads := slices.Repeat([]string{payload}, perBatch)
	var todo []*sink.Batch
	for p := range partitions {
		for i := range batches {
			todo = append(todo, Batch(fmt.Sprintf("p%d", p), int64(1+i*perBatch), payloads...))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	var repeated atomic.Int32
	for round := 1; len(todo) > 0; round++ {
		random.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
		var mu sync.Mutex
		var again []*sink.Batch
		var acked atomic.Int32
		var writers sync.WaitGroup
		work := make(chan []*sink.Batch)
		for range writersAtOnce {
			writers.Go(func() {
				for group := range work {
					err := s.Write(t.Context(), group)
					if sink.IsPermanent(err) {
						t.Errorf("a killed target is not a rejection: %v", err)
					}
					repeat := err == nil && round <= kills && acked.Add(1)%3 == 0
					if repeat {
						repeated.Add(1)
					}
					if err != nil || repeat {
						mu.Lock()
						again = append(again, group...)
						mu.Unlock()
					}
				}
			})
		}
		writes := 0
		for group := range slices.Chunk(todo, perWrite) {
			work <- group
			if writes++; writes == 2*writersAtOnce && round <= kills {
				kill() // some Writes are under way, others were answered
			}
		}
		close(work)
		writers.Wait()
		if round <= kills {
			launch()
		}
		todo = again
	}
	if repeated.Load() == 0 {
		t.Error("nothing was written twice: the test shows nothing")
	}
	return partitions * batches * perBatch
}

// Bisect writes as the drain does: what is rejected for good is halved until the entry is
// found. It returns the entries that nobody takes.
func Bisect(t *testing.T, s sink.Sink, batches []*sink.Batch) (dead []sink.Entry) {
	t.Helper()
	err := s.Write(t.Context(), batches)
	switch {
	case err == nil:
		return nil
	case !sink.IsPermanent(err):
		t.Fatalf("got %v", err)
	case checkError(err, batches) != nil:
		t.Fatal(checkError(err, batches))
	case len(batches) > 1:
		half := len(batches) / 2
		return append(Bisect(t, s, batches[:half]), Bisect(t, s, batches[half:])...)
	case len(batches[0].Entries) == 1:
		return batches[0].Entries
	}
	left, right := *batches[0], *batches[0]
	half := len(left.Entries) / 2
	left.Entries, right.Entries = left.Entries[:half], right.Entries[half:]
	return append(Bisect(t, s, []*sink.Batch{&left}), Bisect(t, s, []*sink.Batch{&right})...)
}
