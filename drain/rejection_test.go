package drain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// poison rejects as a whole any batch with the payload in it.
func poison(payload string) func(context.Context, []*sink.Batch) error {
	return func(_ context.Context, batches []*sink.Batch) error {
		for _, b := range batches {
			for _, e := range b.Entries {
				if string(e.Payload) == payload {
					return sink.Permanent(errors.New("bad value"))
				}
			}
		}
		return nil
	}
}

func TestPoisonEntryCostsOneDeadLetter(t *testing.T) {
	for _, at := range []int{0, 1, 63, 64, 100, 127} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.sink.write = poison("poison")
				payloads := make([]string, 300)
				payloads[at] = "poison"
				r.store.produceAll(r.ns, "p", 0, payloads...)
				r.start()
				r.drained(10 * time.Second)
				r.stop()
				r.wantLedger(partition.Ledger{Accepted: 300, Delivered: 299, Dead: 1})
				if seqs := r.sink.accepted("p"); !slices.IsSorted(seqs) {
					t.Errorf("accepted out of order: %v", seqs)
				}
				letters := r.store.letters(r.ns)
				if len(letters) != 1 || !bytes.Contains(letters[0], []byte(`"text":"poison","reason":"rejected","error":"bad value"`)) {
					t.Errorf("dead letters %s", letters)
				}
				for _, w := range r.sink.seen() {
					if w.attempt != 1 {
						t.Errorf("attempt %d: the search for a poison entry is no retry", w.attempt)
					}
				}
			})
		})
	}
}

func TestBisectionGoesOnInTheNextLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		bad := poison("poison")
		r.sink.write = func(ctx context.Context, batches []*sink.Batch) error {
			clocktest.Take(3 * time.Second)
			return bad(ctx, batches)
		}
		payloads := make([]string, 128)
		payloads[0] = "poison"
		r.store.produceAll(r.ns, "p", 0, payloads...)
		r.start()
		r.drained(2 * time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 128, Delivered: 127, Dead: 1})
	})
}

func TestPartialFailureDeadLettersWhatIsPermanent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			var e sink.BatchError
			e.Fail(0, 7, sink.Permanent(errors.New("no")))
			e.Fail(0, 2, sink.Permanent(errors.New("never")))
			return &e
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		r.drained(10 * time.Second)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 10, Delivered: 8, Dead: 2})
		letters := r.store.letters(r.ns)
		if !bytes.Contains(letters[0], []byte("never")) || !bytes.Contains(letters[1], []byte(`"no"`)) {
			t.Errorf("dead letters out of order: %s", letters)
		}
		if n := len(r.sink.seen()); n != 1 {
			t.Errorf("%d writes", n)
		}
	})
}

func TestPartialFailurePresentsOnlyWhatTheSinkDidNotAcceptAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		first := true
		r.sink.write = func(_ context.Context, batches []*sink.Batch) error {
			if !first {
				return nil
			}
			first = false
			var e sink.BatchError
			e.Fail(0, 1, sink.Permanent(errors.New("no")))
			e.Fail(0, 4, errDown)
			e.Fail(0, 6, sink.Permanent(errors.New("no")))
			return &e
		}
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		r.drained(time.Minute)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 10, Delivered: 9, Dead: 1})
		list := r.sink.seen()
		// The dead letter behind the one to be retried is not settled with it.
		if len(list) != 2 || !slices.Equal(list[1].seqs, []int64{list[0].seqs[4], list[0].seqs[6]}) {
			t.Errorf("written %+v", list)
		}
		if list[0].id == list[1].id {
			t.Error("another set of entries under the same id: a deduplicating sink would swallow it")
		}
		if list[1].attempt != 2 {
			t.Errorf("attempt %d", list[1].attempt)
		}
	})
}

func TestBatchErrorThatNamesNothingOrNonsenseLosesNothing(t *testing.T) {
	for name, bad := range map[string]*sink.BatchError{
		"nothing":  {},
		"nonsense": {Failed: []sink.EntryError{{Batch: 0, Entry: 99, Err: errDown}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				first := true
				r.sink.write = func(context.Context, []*sink.Batch) error {
					if first {
						first = false
						return bad
					}
					return nil
				}
				r.store.produce(r.ns, "p", 10, 0)
				r.start()
				r.drained(time.Minute)
				r.stop()
				if got := r.failures(guard.ReasonBadBatchError); got != 1 {
					t.Errorf("counted %d", got)
				}
				r.wantLedger(partition.Ledger{Accepted: 10, Delivered: 10})
			})
		})
	}
}

func TestCoalescingSinkGetsConsecutiveBatchesTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Batch = 10 })
		r.sink.caps = sink.Caps{MaxBatches: 3}
		bad := poison("poison")
		r.sink.write = bad
		payloads := make([]string, 80)
		payloads[44] = "poison"
		r.store.produceAll(r.ns, "p", 0, payloads...)
		r.start()
		r.drained(10 * time.Second)
		r.stop()
		together := 0
		for _, w := range r.sink.seen() {
			together = max(together, w.together)
		}
		if together != 3 {
			t.Errorf("at most %d batches together", together)
		}
		r.ordered("p")
		r.wantLedger(partition.Ledger{Accepted: 80, Delivered: 79, Dead: 1})
	})
}
