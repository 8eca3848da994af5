package partition_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

// site is a Store on some Redis, with helpers.
type site struct {
	*partition.Store
	t       *testing.T
	ns      *partition.Namespace
	backend *backend.Backend // nil: the store's own
}

// Close closes the connections, too.
func (s *site) Close() error {
	err := s.Store.Close()
	if s.backend != nil {
		_ = s.backend.Close()
	}
	return err
}

// open opens a Store that is patient: see backendtest.Patience.
func open(t *testing.T, url string, change func(*partition.Policy)) *site {
	t.Helper()
	return openPrefix(t, url, "sw", change)
}

func openPrefix(t *testing.T, url, prefix string, change func(*partition.Policy)) *site {
	t.Helper()
	return openSite(t, partition.Config{Backend: backendtest.Open(t, backend.Config{URL: url}), Prefix: prefix}, change)
}

// openHasty opens a Store with the time-outs of a service.
func openHasty(t *testing.T, url, prefix string, change func(*partition.Policy)) *site {
	t.Helper()
	return openSite(t, partition.Config{URL: url, Prefix: prefix}, change)
}

func openSite(t *testing.T, cfg partition.Config, change func(*partition.Policy)) *site {
	t.Helper()
	policy := partition.DefaultPolicy()
	policy.Capacity = 1_000_000
	if change != nil {
		change(&policy)
	}
	cfg.Namespaces = map[string]partition.Policy{"default": policy}
	s, err := partition.Open(cfg, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &site{s, t, s.Namespace("default"), cfg.Backend}
}

// usable has a store checked until that passes: the first connections may take a busy machine longer
// than the store waits for them.
func usable(tb testing.TB, s *partition.Store) {
	tb.Helper()
	var err error
	redistest.Until(tb, patience, "the store can be used", func() bool {
		if _, err = s.Check(tb.Context()); errors.Is(err, partition.ErrBroken) {
			tb.Fatal(err)
		}
		return err == nil
	})
}

// entry is one entry that cannot go stale while a test runs.
func entry(payload string) []byte {
	return partition.AppendEntry(nil, time.Now().Add(time.Hour).UnixMilli(), nil, []byte(payload))
}

// produce tries once. A busy machine takes seconds at times.
func (s *site) produce(name, payload string) error { return s.produceIn(patience, name, payload) }

// produceSoon has the deadline of a second that a request has.
func (s *site) produceSoon(name, payload string) error {
	return s.produceIn(time.Second, name, payload)
}

func (s *site) produceIn(limit time.Duration, name, payload string) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	g := &partition.Group{Namespace: s.ns, Partition: name, Entries: [][]byte{entry(payload)}}
	s.Produce(ctx, []*partition.Group{g})
	return g.Err
}
