package drain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// On a real Redis, two drainers side by side and one target that takes Writes of many
// partitions: it hangs, throttles, takes halves, rejects poison and fails now and
// then. The ledger is exact and the order is kept.
func TestRedisTwoDrainersAndAFailingSinkThatCoalesces(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	policy := partition.DefaultPolicy()
	policy.Linger = 50 * time.Millisecond
	policy.Shards = 2
	cfg := DefaultConfig()
	cfg.SinkTimeout, cfg.Lease = time.Second, 5*time.Second
	cfg.BackoffMax = 500 * time.Millisecond
	cfg.Poll = 50 * time.Millisecond
	write := func(ctx context.Context, batches []*sink.Batch) error {
		wait := time.NewTimer(time.Duration(rand.IntN(8)) * time.Millisecond)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		var poison sink.BatchError
		for i, b := range batches {
			for j, e := range b.Entries {
				if string(e.Payload) == `{"i":70}` {
					poison.Fail(i, j, sink.Permanent(errors.New("70")))
				}
			}
		}
		switch {
		case len(poison.Failed) > 0 && rand.IntN(3) == 0:
			return &poison
		case len(poison.Failed) > 0:
			return sink.Permanent(errors.New("one of them"))
		}
		switch rand.IntN(20) {
		case 0:
			return errDown
		case 1:
			var half sink.BatchError
			for i, b := range batches {
				for j := range b.Entries {
					if rand.IntN(2) == 0 {
						half.Fail(i, j, errDown)
					}
				}
			}
			return &half
		case 2:
			return sink.Throttle(errDown, 30*time.Millisecond)
		case 3:
			return sink.ErrNotConnected
		case 4:
			panic(errDown)
		case 5:
			return hang(ctx, batches)
		}
		return nil
	}
	shared := &fakeSink{write: write, caps: sink.Caps{MaxBatches: 1000, PreferEntries: 2000, Linger: 50 * time.Millisecond}}
	one := startProcess(t, server.URL(), policy, cfg, shared)
	two := startProcess(t, server.URL(), policy, cfg, shared)
	one.start(t)
	two.start(t)
	const partitions, entries = 200, 100
	for p := range partitions {
		one.produce(t, fmt.Sprintf("p%d", p), entries)
	}
	one.drained(t, 90*time.Second)
	two.stop(t)
	one.stop(t)

	l := one.ledger(t)
	if want := (partition.Ledger{Accepted: partitions * entries, Delivered: partitions * (entries - 1), Dead: partitions}); l != want {
		t.Errorf("ledger\n got %+v\nwant %+v", l, want)
	}
	if residual, err := one.store.Audit(t.Context(), one.ns); residual != 0 || err != nil {
		t.Errorf("audit: %d %v", residual, err)
	}
	if shared.stale > 0 {
		t.Errorf("%d stale entries were written", shared.stale)
	}
	r := &rig{t: t, sink: shared}
	for p := range partitions {
		name := fmt.Sprintf("p%d", p)
		r.ordered(name)
		seen := map[int64]bool{}
		for _, seq := range flat(shared.of(name)) {
			seen[seq] = true
		}
		if len(seen) != entries {
			t.Errorf("%s: the sink saw %d of %d entries", name, len(seen), entries)
		}
	}
}

// One entry each of 10,000 partitions: as many leases wait at once.
func TestRedisSparsePartitionsFillLargeWrites(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	policy := partition.DefaultPolicy()
	policy.Linger = 0
	s := &fakeSink{caps: sink.Caps{MaxBatches: 10_000, PreferEntries: 10_000, Linger: 20 * time.Second}}
	p := startProcess(t, server.URL(), policy, DefaultConfig(), s)
	const partitions = 20_000
	now, _ := p.store.Now()
	for lo := 0; lo < partitions; lo += 500 {
		groups := make([]*partition.Group, 500)
		for i := range groups {
			groups[i] = &partition.Group{Namespace: p.ns, Partition: fmt.Sprintf("p%d", lo+i),
				Entries: [][]byte{partition.AppendEntry(nil, now, nil, []byte("x"))}}
		}
		p.store.Produce(t.Context(), groups)
	}
	p.start(t)
	p.drained(t, 60*time.Second)
	p.stop(t)
	if l := p.ledger(t); l != (partition.Ledger{Accepted: partitions, Delivered: partitions}) {
		t.Errorf("ledger %+v", l)
	}
	// Two full ones, if claiming them takes less than the linger.
	if sizes, _ := s.writesMade(); len(sizes) > 8 {
		t.Errorf("%d Writes: %v", len(sizes), sizes)
	} else {
		t.Logf("Writes of %v entries", sizes)
	}
}
