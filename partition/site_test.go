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
)

// site is a Store on some Redis, with helpers.
type site struct {
	*partition.Store
	t  *testing.T
	ns *partition.Namespace
}

// open opens a Store that is patient: see partition.Patient.
func open(t *testing.T, url string, change func(*partition.Policy)) *site {
	t.Helper()
	return openPrefix(t, url, "sw", change)
}

func openPrefix(t *testing.T, url, prefix string, change func(*partition.Policy)) *site {
	t.Helper()
	s := openHasty(t, url, prefix, change)
	partition.Patient(s.Store)
	return s
}

// openHasty opens a Store with the time-outs of a service.
func openHasty(t *testing.T, url, prefix string, change func(*partition.Policy)) *site {
	t.Helper()
	policy := partition.DefaultPolicy()
	policy.Capacity = 1_000_000
	if change != nil {
		change(&policy)
	}
	s, err := partition.Open(partition.Config{URL: url, Prefix: prefix, Namespaces: map[string]partition.Policy{"default": policy}},
		prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &site{s, t, s.Namespace("default")}
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
