package drain

import (
	"context"
	"errors"
	"flag"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most of them wait for Redis, or for a time
	goleak.VerifyTestMain(m,
		// ants makes a pool of its own when it is imported.
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	)
}

// fakeSink records every Write, and does what its funcs say.
type fakeSink struct {
	caps  sink.Caps
	open  func(ctx context.Context) error
	write func(ctx context.Context, batches []*sink.Batch) error
	close func(ctx context.Context) error

	now    func() int64 // the store's clock
	maxAge time.Duration

	mu        sync.Mutex
	opens     int
	closes    int
	running   int
	maxWrites int // at once
	writes    []written
	stale     int // entries that were stale when Write began
	late      int // Writes allowed to last until an entry is stale
}

// written is one batch as a Write saw it.
type written struct {
	partition string
	id        string
	attempt   int
	seqs      []int64
	at        time.Time
	deadline  time.Time
	together  int   // batches in that Write
	err       error // of that Write
}

var _ sink.Sink = (*fakeSink)(nil)

func (s *fakeSink) Caps() sink.Caps { return s.caps }

func (s *fakeSink) Open(ctx context.Context) error {
	s.mu.Lock()
	s.opens++
	s.mu.Unlock()
	if s.open != nil {
		return s.open(ctx)
	}
	return nil
}

func (s *fakeSink) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closes++
	if s.running > 0 {
		panic("closed under a Write")
	}
	s.mu.Unlock()
	if s.close != nil {
		return s.close(ctx)
	}
	return nil
}

func (s *fakeSink) Write(ctx context.Context, batches []*sink.Batch) (err error) {
	s.mu.Lock()
	s.running++
	deadline, _ := ctx.Deadline()
	s.maxWrites = max(s.maxWrites, s.running)
	first := len(s.writes)
	now, left := s.now(), time.Until(deadline)
	for _, b := range batches {
		w := written{partition: b.Partition, id: b.ID(), attempt: b.Attempt, at: time.Now(), deadline: deadline, together: len(batches)}
		for _, e := range b.Entries {
			w.seqs = append(w.seqs, e.Seq)
			life := time.Duration(e.Occurred+s.maxAge.Milliseconds()-now) * time.Millisecond
			if life <= 0 {
				s.stale++
			}
			if left > life+2*time.Millisecond {
				s.late++
			}
		}
		s.writes = append(s.writes, w)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
		for i := range batches {
			s.writes[first+i].err = err
		}
	}()
	if s.write != nil {
		return s.write(ctx, batches)
	}
	return nil
}

func (s *fakeSink) state() (opens, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opens, s.running
}

func (s *fakeSink) seen() []written {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// of is what the sink saw of one partition.
func (s *fakeSink) of(partition string) (list []written) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.writes {
		if w.partition == partition {
			list = append(list, w)
		}
	}
	return list
}

// flat is the sequences of batches, one after the other.
func flat(list []written) (seqs []int64) {
	for _, w := range list {
		seqs = append(seqs, w.seqs...)
	}
	return seqs
}

// A rig is a drainer of one namespace over a fake store and a fake sink.
type rig struct {
	t     testing.TB
	store *fakeStore
	ns    *partition.Namespace
	sink  *fakeSink
	cfg   Config
	d     *Drainer
	logs  *observer.ObservedLogs
	more  []Target
}

// newRig is called inside a bubble. The drainer is made by start.
func newRig(t testing.TB, change ...func(*partition.Policy)) *rig {
	ns := space("games", change...)
	r := &rig{t: t, store: newFakeStore(ns), ns: ns, cfg: DefaultConfig()}
	r.sink = r.fakeSink(ns)
	return r
}

func (r *rig) fakeSink(ns *partition.Namespace) *fakeSink {
	return &fakeSink{now: r.store.now, maxAge: ns.Policy.MaxAge}
}

func (r *rig) start() {
	r.t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	r.logs = logs
	targets := append([]Target{{Namespace: r.ns, Sink: r.sink, Label: "fake:"}}, r.more...)
	d, err := New(r.cfg, r.store, targets, prometheus.NewRegistry(), zap.New(core))
	if err != nil {
		r.t.Fatal(err)
	}
	r.d = d
	if err := d.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// drained waits until nothing is buffered, for so long at most.
func (r *rig) drained(limit time.Duration) {
	r.t.Helper()
	end := time.Now().Add(limit)
	for r.store.ledger(r.ns).Buffered > 0 {
		if time.Now().After(end) {
			r.t.Fatalf("still buffered after %v: %+v", limit, r.store.ledger(r.ns))
		}
		clocktest.Pass(10 * time.Millisecond)
	}
}

// stop ends the drainer, which must succeed and leave nothing behind.
func (r *rig) stop() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.d.Stop(ctx); err != nil {
		r.t.Errorf("stop: %v", err)
	}
	r.verify()
}

// verify holds what every test must leave behind.
func (r *rig) verify() {
	r.t.Helper()
	r.store.check(r.t)
	if r.sink.stale > 0 {
		r.t.Errorf("%d stale entries were written", r.sink.stale)
	}
	if r.sink.late > 0 {
		r.t.Errorf("%d times a Write was allowed to outlast an entry", r.sink.late)
	}
	if got := r.value(r.d.namespaces[0].metrics.leases); got != 0 {
		r.t.Errorf("%v leases in hand after the end", got)
	}
}

func (r *rig) metrics() *namespaceMetrics { return r.d.namespaces[0].metrics }

func (r *rig) value(c prometheus.Collector) float64 { return testutil.ToFloat64(c) }

func (r *rig) outcome(outcome string) int {
	return int(testutil.ToFloat64(r.metrics().entries.WithLabelValues(outcome)))
}

func (r *rig) failures(reason string) int {
	return int(testutil.ToFloat64(r.metrics().Failures.WithLabelValues(reason)))
}

func (r *rig) lines(message string) int { return r.logs.FilterMessage(message).Len() }

// bubble runs f in a bubble of its own, beside other tests.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// wantLedger fails the test unless the ledger is exactly as wanted.
func (r *rig) wantLedger(want partition.Ledger) {
	r.t.Helper()
	if got := r.store.ledger(r.ns); got != want {
		r.t.Errorf("ledger\n got %+v\nwant %+v", got, want)
	}
}

// ordered fails the test unless first presentations of a partition rise.
func (r *rig) ordered(partition string) {
	r.t.Helper()
	var last int64
	seen := map[int64]bool{}
	for _, seq := range flat(r.sink.of(partition)) {
		if seq < last && !seen[seq] {
			r.t.Errorf("partition %s: %d is presented for the first time after %d", partition, seq, last)
		}
		last, seen[seq] = max(last, seq), true
	}
}

// accepted is the sequences of the Writes of a partition that succeeded.
func (s *fakeSink) accepted(partition string) (seqs []int64) {
	for _, w := range s.of(partition) {
		if w.err == nil {
			seqs = append(seqs, w.seqs...)
		}
	}
	return seqs
}

// size is how much of something a test needs: less of it with -short.
func size(whole, short int) int {
	if testing.Short() {
		return short
	}
	return whole
}

// hang blocks until ctx ends.
func hang(ctx context.Context, _ []*sink.Batch) error {
	<-ctx.Done()
	return ctx.Err()
}

var errDown = errors.New("target is down")
