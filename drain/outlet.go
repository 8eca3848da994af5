package drain

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

// An outlet is one namespace's way out: its sink, its workers, its claim loops.
// Outlets share the store and the settlers and nothing that a sink can hold up.
type outlet struct {
	cfg      Config
	store    Store
	settlers []*settler // by zone
	target   Target
	caps     sink.Caps
	log      *zap.Logger
	metrics  *outletMetrics

	pool    *ants.Pool
	slots   slots
	gate    *gate
	health  *health
	pace    pace
	commits pace // of settlements, under at-most-once, where a Write waits for its commit
	narrow  narrow
	outage  *partition.OutageLog

	// The three ends of Stop, in this order: no more claims, no more Writes, no
	// more calls to the store.
	claiming, writing, settling context.Context

	loops   sync.WaitGroup
	workers sync.WaitGroup
	mu      sync.Mutex
	refusal time.Time     // when the store's refusal of a partition was last logged
	closed  error         // what the sink's Close said
	ended   chan struct{} // closes when all of this is over
}

func newOutlet(d *Drainer, t Target, m *outletMetrics) (*outlet, error) {
	o := &outlet{
		cfg: d.cfg, store: d.store, settlers: d.settlers, outage: &d.outage, target: t, caps: t.Sink.Caps(), metrics: m,
		log:      d.log.With(zap.String("namespace", t.Namespace.Name), zap.String("sink", t.Label)),
		claiming: d.claiming, writing: d.writing, settling: d.settling,
		ended: make(chan struct{}),
	}
	o.health = &health{log: o.log, metrics: m}
	o.gate = newGate(t.Sink, d.cfg, o.health)
	size := d.cfg.Workers
	if o.caps.MaxInFlight > 0 {
		size = min(size, o.caps.MaxInFlight)
	}
	o.slots = newSlots(size)
	var err error
	o.pool, err = ants.NewPool(size, ants.WithPanicHandler(o.panicked), ants.WithExpiryDuration(10*time.Second))
	if err != nil {
		return nil, fmt.Errorf("make workers of namespace %s: %w", t.Namespace.Name, err)
	}
	return o, nil
}

// start runs the keeper of the sink and a claim loop for each shard.
func (o *outlet) start() {
	o.loops.Go(func() { o.gate.keep(o.claiming) })
	for shard := range o.target.Namespace.Policy.Shards {
		l := newLoop(o, shard)
		o.loops.Go(func() { l.run(o.claiming) })
	}
	go o.finish()
}

// finish ends the outlet when claiming has ended: workers first, for the sink
// must not be closed under a Write.
func (o *outlet) finish() {
	defer close(o.ended)
	o.loops.Wait()
	o.workers.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), o.cfg.SinkTimeout)
	defer cancel()
	// A Stop out of patience leaves Close only what is left of the grace.
	defer context.AfterFunc(o.settling, cancel)()
	if err := o.gate.close(ctx); err != nil {
		o.closed = fmt.Errorf("close sink of namespace %s: %w", o.target.Namespace.Name, err)
	}
	o.release()
}

// release frees the workers; they are idle.
func (o *outlet) release() { _ = o.pool.ReleaseTimeout(stopGrace) }

// hand gives a lease to a worker. The caller holds a slot for it, so one is
// free or about to be.
func (o *outlet) hand(l *loop, lease *partition.Lease) {
	o.workers.Add(1)
	o.metrics.leases.Inc()
	task := func() {
		var refusal error
		defer o.workers.Done()
		defer o.slots.put(1)
		defer func() {
			o.metrics.leases.Dec()
			l.held.free(lease.Partition)
			if refusal != nil {
				// The lease lapses and the same entries come again, to be
				// refused again: the sink should not see them at that pace.
				o.refused(l, lease.Partition, "settlement refused", refusal)
			}
		}()
		refusal = work(o, lease)
	}
	if err := o.pool.Submit(task); err != nil {
		// Only a closed pool refuses, and it closes after the loops. A lease is
		// not forgotten even so.
		task()
	}
}

// refused leaves a partition alone that the store refuses, for it would come
// first in every round. A person has to look: a line now and then says so.
func (o *outlet) refused(l *loop, partition, what string, err error) {
	l.held.quarantine(partition)
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.refusal) < quarantine {
		return
	}
	o.refusal = time.Now()
	o.log.Error(what, zap.Int("shard", l.shard), zap.String("partition", partition), zap.Error(err))
}

// panicked is told of panics outside of the sink: bugs of ours. The lease
// lapses and its range comes again.
func (o *outlet) panicked(value any) {
	o.metrics.panics.Inc()
	o.log.Error("worker panicked", zap.String("error", newPanicError(value, nil).text), zap.ByteString("stack", debug.Stack()))
}

// write hands batches to the sink, until deadline at most. A process that was
// stopped in between finds the deadline passed, and must not write any more.
func (o *outlet) write(batches []*sink.Batch, deadline time.Time) (err error) {
	ctx, cancel := context.WithDeadline(o.writing, deadline)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	defer o.gate.recovered(&err)
	err = o.target.Sink.Write(ctx, batches)
	if err != nil && ctx.Err() == context.DeadlineExceeded && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// slots are the leases a namespace may have in hand.
type slots chan struct{}

func newSlots(n int) slots {
	s := make(slots, n)
	s.put(n)
	return s
}

// take waits for one slot. It is false when ctx ends.
func (s slots) take(ctx context.Context) bool {
	select {
	case <-s:
		return true
	case <-ctx.Done():
		return false
	}
}

// more takes up to n slots that are free now.
func (s slots) more(n int) int {
	for got := range n {
		select {
		case <-s:
		default:
			return got
		}
	}
	return max(n, 0)
}

func (s slots) put(n int) {
	for range n {
		s <- struct{}{}
	}
}
