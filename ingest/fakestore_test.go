package ingest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// now is the fake store's clock.
const now int64 = 1_763_629_675_100

var _ Store = (*fakeStore)(nil)
var _, _ Store = (*partition.Store)(nil), (*partition.Stores)(nil)

// fakeStore keeps entries in memory unless a func says otherwise.
type fakeStore struct {
	namespaces map[string]*partition.Namespace
	now        func() (int64, bool)
	produce    func(ctx context.Context, groups []*partition.Group)
	stats      func(ctx context.Context, ns *partition.Namespace, name string) (partition.Stats, error)

	mu    sync.Mutex
	lists map[string][]string // by "namespace/partition", entries as encoded
	seen  map[string]partition.Group
	calls int
	wrong error // how a caller broke the contract of Store.Produce
}

func newFake() *fakeStore {
	policy := partition.DefaultPolicy()
	small := policy
	small.Capacity = 5
	f := &fakeStore{
		namespaces: map[string]*partition.Namespace{
			"default": {Name: "default", Policy: policy},
			"small":   {Name: "small", Policy: small},
		},
		now:   func() (int64, bool) { return now, true },
		lists: map[string][]string{},
		seen:  map[string]partition.Group{},
	}
	f.produce = f.keep
	f.stats = func(context.Context, *partition.Namespace, string) (partition.Stats, error) {
		return partition.Stats{}, partition.ErrNoPartition
	}
	return f
}

func (f *fakeStore) Namespace(name string) *partition.Namespace {
	if name == "panics" {
		panic("a bug")
	}
	return f.namespaces[name]
}
func (f *fakeStore) Zones() int                               { return 1 }
func (f *fakeStore) NowOf(*partition.Namespace) (int64, bool) { return f.now() }
func (f *fakeStore) Produce(ctx context.Context, groups []*partition.Group) {
	f.produce(ctx, groups)
}
func (f *fakeStore) Stats(ctx context.Context, ns *partition.Namespace, name string) (partition.Stats, error) {
	return f.stats(ctx, ns, name)
}

// keep implements the store's contract in memory, and checks that the caller follows it.
func (f *fakeStore) keep(_ context.Context, groups []*partition.Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	for _, g := range groups {
		key := g.Namespace.Name + "/" + g.Partition
		if len(g.Entries) == 0 || g.Accepted+g.Evicted+g.Depth != 0 || g.Err != nil || g.Repeated {
			f.wrong = fmt.Errorf("group of %s breaks the contract: %+v", key, g)
		}
		if first, ok := f.seen[key+" "+g.IdempotencyKey]; ok {
			g.Accepted, g.Evicted, g.Depth, g.Repeated = first.Accepted, first.Evicted, first.Depth, true
			continue
		}
		list := f.lists[strings.Clone(key)]
		for _, e := range g.Entries {
			if _, err := partition.ParseEntry(e); err != nil {
				f.wrong = fmt.Errorf("entry %q: %w", e, err)
			}
			list = append(list, string(e))
		}
		g.Accepted = len(g.Entries)
		g.Evicted = max(0, len(list)-g.Namespace.Policy.Capacity)
		list = list[g.Evicted:]
		g.Depth = len(list)
		f.lists[key] = list
		if g.IdempotencyKey != "" {
			f.seen[key+" "+g.IdempotencyKey] = *g
		}
	}
}

// entries returns what a partition holds, "namespace/partition".
func (f *fakeStore) entries(key string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.lists[key]...)
}

// failWith answers every group with err.
func failWith(err error) func(context.Context, []*partition.Group) {
	return func(_ context.Context, groups []*partition.Group) {
		for _, g := range groups {
			g.Err = err
		}
	}
}

// blockProduce makes calls of Produce wait until unblock is called. entered receives
// when a call waits.
func (f *fakeStore) blockProduce() (entered <-chan struct{}, unblock func()) {
	in, gate := make(chan struct{}, 64), make(chan struct{})
	inner := f.produce
	f.produce = func(ctx context.Context, groups []*partition.Group) {
		select {
		case in <- struct{}{}:
		default:
		}
		<-gate
		inner(ctx, groups)
	}
	return in, sync.OnceFunc(func() { close(gate) })
}

// longProduceTimeout lets requests wait for blockProduce on a slow machine.
func longProduceTimeout(c *Config) { c.ProduceTimeout = time.Minute }

// failPartitions fails the groups of the partitions in errs and stores the others.
func (f *fakeStore) failPartitions(errs map[string]error) {
	f.produce = func(ctx context.Context, groups []*partition.Group) {
		var kept []*partition.Group
		for _, g := range groups {
			if g.Err = errs[g.Partition]; g.Err == nil {
				kept = append(kept, g)
			}
		}
		f.keep(ctx, kept)
	}
}

// instantStore accepts everything at once and allocates nothing.
func instantStore() *fakeStore {
	f := newFake()
	f.produce = func(_ context.Context, groups []*partition.Group) {
		for _, g := range groups {
			g.Accepted, g.Depth = len(g.Entries), len(g.Entries)
		}
	}
	return f
}
