package main

import (
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/bench"
)

// maxEvents is the most events of one measurement; their marks take 4 MB.
const maxEvents = 1 << 25

// tally counts what comes out. Each event is marked by its number, so a repeated
// one is not taken for another.
type tally struct {
	marks     []atomic.Uint32
	delivered atomic.Int64 // different events
	repeated  atomic.Int64
	damaged   atomic.Int64 // no number, or one that was never given
	batches   atomic.Int64
	last      atomic.Int64 // when something was delivered last, Unix ns
}

func newTally() *tally { return &tally{marks: make([]atomic.Uint32, maxEvents/32)} }

// batch takes one batch, however large.
func (t *tally) batch(events ...[]byte) {
	for _, payload := range events {
		t.mark(payload)
	}
	t.batches.Add(1)
	t.last.Store(time.Now().UnixNano())
}

func (t *tally) mark(payload []byte) {
	n, err := bench.PayloadNumber(payload)
	if err != nil || n < 0 || n >= maxEvents {
		t.damaged.Add(1)
		return
	}
	bit := uint32(1) << (n % 32)
	if t.marks[n/32].Or(bit)&bit != 0 {
		t.repeated.Add(1)
		return
	}
	t.delivered.Add(1)
}

// report is for a side that counts by itself, in another process.
func (t *tally) report(delivered int64) {
	if t.delivered.Swap(delivered) != delivered {
		t.last.Store(time.Now().UnixNano())
	}
}
