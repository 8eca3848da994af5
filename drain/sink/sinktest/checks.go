package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

var checks = []check{
	{"opens and closes in any order", checkLifecycle},
	{"says its capabilities once", checkCaps},
	{"keeps the order within a partition", opened(checkOrder)},
	{"takes batches of 1 to 128 entries", opened(checkSizes)},
	{"takes as many batches a Write as it says", opened(checkManyBatches)},
	{"takes batches of many partitions a Write", opened(checkCoalesced)},
	{"passes payloads and ids on unchanged", opened(checkPayloads)},
	{"keeps no payload", opened(checkAliasing)},
	{"takes concurrent Writes", opened(checkConcurrency)},
	{"rejects an ended context at once", opened(checkEndedContext)},
	{"returns at the deadline", opened(checkDeadline)},
	{"reports failures by the rules", checkFaults},
	{"takes the same batch twice", opened(checkRepeat)},
}

// opened is a check of a sink that is open.
func opened(run func(ctx context.Context, f Fixture) error) func(context.Context, func() Fixture) error {
	return func(ctx context.Context, fixture func() Fixture) error {
		f := fixture()
		if err := f.open(ctx); err != nil {
			return err
		}
		defer f.Sink.Close(ctx)
		return run(ctx, f)
	}
}

func checkLifecycle(ctx context.Context, fixture func() Fixture) error {
	if err := call("Close without Open", func() error { return fixture().Sink.Close(ctx) }); err != nil {
		return err
	}
	f := fixture()
	b := newBatch("lifecycle", 1, 3)
	return first(
		call("Open", func() error { return f.Sink.Open(ctx) }),
		call("second Open", func() error { return f.Sink.Open(ctx) }),
		f.write(ctx, b),
		call("Close", func() error { return f.Sink.Close(ctx) }),
		call("second Close", func() error { return f.Sink.Close(ctx) }),
		f.expect(once, b),
	)
}

func checkCaps(ctx context.Context, fixture func() Fixture) error {
	f := fixture()
	before := f.Sink.Caps()
	if err := f.open(ctx); err != nil {
		return err
	}
	defer f.Sink.Close(ctx)
	if err := f.write(ctx, newBatch("caps", 1, 1)); err != nil {
		return err
	}
	if after := f.Sink.Caps(); after != before {
		return fmt.Errorf("Caps changed from %+v to %+v", before, after)
	}
	switch {
	case before.MaxBatches < 0, before.MaxInFlight < 0, before.PreferEntries < 0, before.MaxBytes < 0, before.Linger < 0:
		return fmt.Errorf("Caps are negative: %+v", before)
	case before.Linger > 0 && before.MaxBatches < 2:
		return fmt.Errorf("Caps have a Linger but take one batch a Write, so nothing is coalesced: %+v", before)
	}
	return nil
}

func checkOrder(ctx context.Context, f Fixture) error {
	var all []*sink.Batch
	for i := range 10 {
		b := newBatch("order", int64(1+i*20), 20)
		if err := f.write(ctx, b); err != nil {
			return err
		}
		all = append(all, b)
	}
	return f.expect(once, all...)
}

func checkSizes(ctx context.Context, f Fixture) error {
	var all []*sink.Batch
	next := int64(1)
	for _, n := range []int{1, 2, 127, partition.MaxBatch} {
		b := newBatch("sizes", next, n)
		next += int64(n)
		if err := f.write(ctx, b); err != nil {
			return fmt.Errorf("batch of %d: %w", n, err)
		}
		all = append(all, b)
	}
	return f.expect(once, all...)
}

func checkManyBatches(ctx context.Context, f Fixture) error {
	var all []*sink.Batch
	for i := range min(max(f.Sink.Caps().MaxBatches, 1), 100) {
		all = append(all, newBatch(fmt.Sprintf("many-%d", i), 1, 5))
	}
	return first(f.write(ctx, all...), f.expect(once, all...))
}

// checkCoalesced writes what the drain coalesces: runs of consecutive batches of many
// partitions, of all sizes and attempts, in the order in which they came.
func checkCoalesced(ctx context.Context, f Fixture) error {
	caps := f.Sink.Caps()
	if caps.Linger == 0 {
		return nil
	}
	var all []*sink.Batch
	for p := 0; len(all) < min(caps.MaxBatches, 300); p++ {
		next := int64(1)
		for range min(1+p%3, caps.MaxBatches-len(all)) {
			n := []int{1, 2, 40, 1, partition.MaxBatch}[p%5]
			b := newBatch(fmt.Sprintf("coalesced-%d", p), next, n)
			b.Attempt = 1 + p%2
			next += int64(n)
			all = append(all, b)
		}
	}
	return first(f.write(ctx, all...), f.expect(once, all...))
}

func checkPayloads(ctx context.Context, f Fixture) error {
	b := newBatch("payloads", 1, len(payloads))
	for i, p := range payloads {
		b.Entries[i].Payload = []byte(p)
	}
	b.Entries[0].ID = []byte("order-81")
	b.Entries[1].ID = []byte(`!"#$%&'()*+,-./:;<=>?@[\]^_{|}~`)
	b.Entries[2].ID = bytes.Repeat([]byte("i"), partition.MaxIDLen)
	return first(f.write(ctx, b), f.expect(once, b))
}

func checkAliasing(ctx context.Context, f Fixture) error {
	b := newBatch("aliasing", 1, 50)
	want := clone(b)
	if err := f.write(ctx, b); err != nil {
		return err
	}
	// A sink that still reads these is seen by the race detector, too.
	for i := range b.Entries {
		clear(b.Entries[i].Payload)
		clear(b.Entries[i].ID)
	}
	return f.expect(once, want)
}

func checkConcurrency(ctx context.Context, f Fixture) error {
	writers := f.Sink.Caps().MaxInFlight
	if writers == 0 {
		writers = 16
	}
	writers = min(writers, 64)
	const each = 5
	all := make([]*sink.Batch, writers*each)
	errs := make([]error, writers)
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for i := range each {
				b := newBatch(fmt.Sprintf("writer-%d", w), int64(1+i*30), 30)
				all[w*each+i] = b
				if errs[w] = f.write(ctx, b); errs[w] != nil {
					return
				}
			}
		})
	}
	running.Wait()
	return first(errors.Join(errs...), f.expect(once, all...))
}

func checkEndedContext(ctx context.Context, f Fixture) error {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	b := newBatch("ended", 1, 2)
	switch returned, err := f.tryWrite(ended, patience, b); {
	case !returned:
		return fmt.Errorf("Write with an ended context has not returned after %s", patience)
	case err == nil:
		return errors.New("Write with an ended context returned nil")
	}
	return f.expect(once) // nothing
}

func checkDeadline(ctx context.Context, f Fixture) error {
	if f.Stall == nil {
		return nil
	}
	release := sync.OnceFunc(f.Stall())
	defer release()
	const limit = 50 * time.Millisecond
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b := newBatch("deadline", 1, 2)
	switch returned, err := f.tryWrite(short, limit+patience, b); {
	case !returned:
		return fmt.Errorf("Write has not returned %s after its deadline", patience)
	case err == nil:
		return errors.New("Write on a stalled target returned nil")
	}
	release()
	again := clone(b)
	again.Attempt++
	return first(f.rewrite(ctx, again), f.expect(atLeastOnce, b))
}

func checkRepeat(ctx context.Context, f Fixture) error {
	b := newBatch("repeat", 1, 10)
	again := clone(b)
	again.Attempt++
	if again.ID() != b.ID() {
		return fmt.Errorf("the same entries have the ids %s and %s", b.ID(), again.ID())
	}
	return first(f.write(ctx, b), f.write(ctx, again), f.expect(atLeastOnce, b), f.expectID(b.ID()))
}
