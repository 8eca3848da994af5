package drain

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/partition"
)

// A namespaceDrain wires the three rooms of one namespace: the claimers, one an open
// shard, the lease worker and the sink guard. Namespaces share the store and the
// settlers and nothing that a sink can hold up.
type namespaceDrain struct {
	ns      *partition.Namespace
	name    string
	timeout time.Duration // of the sink's Close
	log     *zap.Logger
	metrics *namespaceMetrics
	claimer func(shard int) *claimer
	worker  *leaseWorker
	guard   *guard.Guard
	groups  *coalescer // nil: each lease has Writes of its own
	pool    *ants.Pool
	slots   *guard.Slots // for leases in hand

	label string       // of the sink
	busy  atomic.Int64 // leases that workers have now

	slotBytes int // payload of a lease that takes one slot; 0 = any lease takes one

	claiming, settling context.Context // guard.Life's Claiming and Calling

	running sync.WaitGroup // the claimers and the opener
	workers sync.WaitGroup
	closed  error         // what the sink's Close said
	ended   chan struct{} // closes when all of this is over
}

func newNamespaceDrain(d *Drainer, t Target, m *namespaceMetrics) (*namespaceDrain, error) {
	cfg := t.config(d.cfg)
	n := &namespaceDrain{
		ns:       t.Namespace,
		name:     t.Namespace.Name,
		label:    t.Label,
		timeout:  cfg.SinkTimeout,
		metrics:  m,
		log:      d.log.With(zap.String("namespace", t.Namespace.Name), zap.String("sink", t.Label)),
		claiming: d.life.Claiming,
		settling: d.life.Calling,
		ended:    make(chan struct{}),
	}
	caps := t.Sink.Caps()
	n.guard = guard.New(d.life.Writing, t.Sink, guard.Config{
		SinkTimeout: cfg.SinkTimeout,
		BackoffBase: cfg.BackoffBase,
		BackoffMax:  cfg.BackoffMax,
		After:       t.After,
		Writes:      cfg.Workers,
	}, n.log, &m.Metrics)
	n.worker = &leaseWorker{
		sinkTimeout: cfg.SinkTimeout,
		backoffBase: cfg.BackoffBase,
		backoffMax:  cfg.BackoffMax,
		together:    caps.MaxBatches,
		clock:       func() (int64, bool) { return d.store.NowOf(t.Namespace) },
		settlers:    d.settlers,
		sink:        n.guard,
		metrics:     &m.leaseMetrics,
		drops:       cfg.Drops.Of(t.Namespace.Name),
		claiming:    d.life.Claiming,
		settling:    d.life.Calling,
	}
	depth := newLeaseDepth(t.Namespace, caps.MaxBatches, cfg.MaxLeaseBatches)
	n.slots = n.guard.Slots
	if coalesces(t.Namespace, caps) {
		g := newGroupCaps(t.Namespace, caps, cfg)
		n.slots = guard.NewSlots(g.leases)
		n.slotBytes = max(1, maxGroupsBytes*g.bytes/g.leases)
		n.groups = newCoalescer(n.guard, g, d.life.Claiming, &m.groupMetrics)
		n.worker.sink, n.worker.unitBytes = n.groups, g.bytes
		depth.group = max(1, g.entries/max(1, t.Namespace.Policy.Shards))
	}
	rejections := &guard.RejectionLog{Log: n.log}
	pausing := &deliveryPause{log: n.log, gauge: m.paused}
	n.claimer = func(shard int) *claimer {
		c := &claimer{
			store:      d.store,
			sink:       n.guard,
			ns:         t.Namespace,
			shard:      shard,
			lease:      cfg.Lease,
			poll:       cfg.Poll,
			depth:      depth,
			slots:      n.slots,
			calling:    d.life.Calling,
			inFlight:   newInFlight(),
			outage:     &d.outage,
			rejections: rejections,
			pausing:    pausing,
			metrics:    &m.claimMetrics,
			contention: firstContention,
		}
		c.hand = func(lease *partition.Lease) { n.hand(c, lease) }
		return c
	}
	var err error
	n.pool, err = ants.NewPool(n.slots.Size(), ants.WithPanicHandler(n.panicked),
		ants.WithExpiryDuration(10*time.Second))
	if err != nil {
		return nil, fmt.Errorf("make workers of namespace %s: %w", t.Namespace.Name, err)
	}
	return n, nil
}

// start runs the opener, the coalescer and the claimers.
func (n *namespaceDrain) start() {
	if n.groups != nil {
		n.groups.start()
	}
	n.ns.Home().Draining(true)
	n.running.Go(func() { n.guard.Keep(n.claiming) })
	n.running.Go(n.claim)
	go n.finish()
}

// claim runs a claimer for each shard, once their number is known.
func (n *namespaceDrain) claim() {
	select {
	case <-n.ns.Fixed():
	case <-n.claiming.Done():
		return
	}
	var claimers sync.WaitGroup
	defer claimers.Wait()
	for shard := range n.ns.Shards() {
		claimers.Go(func() { n.claimer(shard).run(n.claiming) })
	}
}

// finish ends the namespace's drain when claiming has ended: workers first, for the
// sink must not be closed under a Write.
func (n *namespaceDrain) finish() {
	defer close(n.ended)
	n.running.Wait()
	n.ns.Home().Draining(false)
	n.metrics.paused.Set(0) // another drainer of the process may follow, and asks anew
	n.workers.Wait()
	if n.groups != nil {
		n.groups.stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.timeout)
	defer cancel()
	// A Stop out of patience leaves Close only what is left of the grace.
	defer context.AfterFunc(n.settling, cancel)()
	if err := n.guard.Close(ctx); err != nil {
		n.closed = fmt.Errorf("close sink of namespace %s: %w", n.name, err)
	}
	n.freeWorkers()
}

// freeWorkers ends the workers. They are idle, so nothing waits for them: ants would do so in a busy loop.
func (n *namespaceDrain) freeWorkers() { n.pool.Release() }

// hand gives a lease to a worker. The claimer holds a slot for it, so a worker is
// free or about to be. Where leases wait for others, one with much payload takes
// several slots, as far as there are any: that bounds what all of them hold.
func (n *namespaceDrain) hand(c *claimer, lease *partition.Lease) {
	n.workers.Add(1)
	n.metrics.leases.Inc()
	n.busy.Add(1)
	slots := 1
	if n.slotBytes > 0 {
		slots += n.slots.More(payloadBytes(lease.Entries) / n.slotBytes)
	}
	task := func() {
		var rejection error
		defer n.workers.Done()
		defer n.slots.Put(slots)
		defer func() {
			n.metrics.leases.Dec()
			n.busy.Add(-1)
			c.ended(lease.Partition, rejection)
		}()
		rejection = n.worker.work(lease)
	}
	if err := n.pool.Submit(task); err != nil {
		// Only a closed pool rejects, and it closes after the claimers have ended. A
		// lease is not dropped even so.
		task()
	}
}

// panicked is told of panics outside of the sink: bugs of ours. The lease
// lapses and its range comes again.
func (n *namespaceDrain) panicked(value any) {
	n.guard.Panicked("worker panicked", value)
}
