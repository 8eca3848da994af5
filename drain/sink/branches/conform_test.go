package branches

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

// A target is a store with the branches a and b, on a redis-server of its own.
type target struct {
	server *redistest.Server
	store  *partition.Store
	client *redis.Client
}

// maxPartitions is what branch b may have.
const maxPartitions = 40

func startTarget(t testing.TB) *target {
	t.Helper()
	server := redistest.Start(t)
	roomy, narrow := partition.DefaultPolicy(), partition.DefaultPolicy()
	roomy.Shards, narrow.MaxPartitions = 3, maxPartitions
	store, err := partition.Open(partition.Config{
		Backend: backendtest.Open(t, backend.Config{URL: server.URL()}), Prefix: "sw", Namespaces: map[string]partition.Policy{"a": roomy, "b": narrow},
	}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return &target{server, store, server.Client()}
}

func (x *target) sink(t testing.TB, raw string) *Sink {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(u)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.(*Sink).Use(x.store); err != nil {
		t.Fatal(err)
	}
	return s.(*Sink)
}

// firstTime is the time of the entry with sequence 0 in the suite. A branch gives
// sequences of its own, so the time tells which entry it is.
const firstTime = 1_763_629_675_000

// records reads all partitions of a branch but those of fill.
func (x *target) records(t testing.TB, branch string) (list []sinktest.Record, err error) {
	keys, err := x.client.Keys(t.Context(), "sw:{"+branch+".*}:q:*").Result()
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		name := key[strings.LastIndex(key, ":")+1:]
		if strings.HasPrefix(name, "filler") {
			continue
		}
		stored, err := x.client.LRange(t.Context(), key, 0, -1).Result()
		if err != nil {
			return nil, err
		}
		for _, raw := range stored {
			e, err := partition.ParseEntry([]byte(raw))
			if err != nil {
				return nil, err
			}
			list = append(list, sinktest.Record{
				Namespace: "sinktest", Partition: name, Seq: e.Occurred - firstTime, Occurred: e.Occurred, ID: e.ID, Payload: e.Payload,
			})
		}
	}
	return list, nil
}

// fill makes as many partitions in branch b as it may have.
func (x *target) fill(t testing.TB) {
	t.Helper()
	var groups []*partition.Group
	for i := range maxPartitions {
		groups = append(groups, &partition.Group{
			Namespace: x.store.Namespace("b"), Partition: fmt.Sprintf("filler-%d", i), Entries: [][]byte{partition.AppendEntry(nil, firstTime, nil, []byte("x"))},
		})
	}
	x.store.Produce(t.Context(), groups)
}

func (x *target) set(t testing.TB, name, value string) {
	t.Helper()
	if err := x.client.ConfigSet(t.Context(), name, value).Err(); err != nil {
		t.Error(err)
	}
}

func TestConforms(t *testing.T) {
	t.Parallel()
	seen := []string{"b", "a"}
	if testing.Short() {
		seen = seen[:1]
	}
	for _, branch := range seen {
		t.Run("as seen in "+branch, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
				x := startTarget(t)
				faults := []sinktest.Fault{
					{Name: "a full store", Start: func() func() {
						x.set(t, "maxmemory", "1")
						return func() { x.set(t, "maxmemory", "0") }
					}},
					{Name: "too few replicas", Start: func() func() {
						x.set(t, "min-replicas-to-write", "1")
						return func() { x.set(t, "min-replicas-to-write", "0") }
					}},
					{Name: "a branch without room for another partition", Permanent: true, Start: func() func() {
						x.fill(t)
						return func() {}
					}},
				}
				return sinktest.Fixture{
					Sink:     x.sink(t, "namespaces://a,b"),
					Received: func() ([]sinktest.Record, error) { return x.records(t, branch) },
					Stall: func() func() {
						x.server.Signal(syscall.SIGSTOP)
						return func() { x.server.Signal(syscall.SIGCONT) }
					},
					Faults: faults,
				}
			}})
		})
	}
}

// partitions are the names of a branch's partitions, in order.
func (x *target) partitions(t testing.TB, branch string) (names []string) {
	t.Helper()
	list, err := x.records(t, branch)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		names = append(names, r.Partition)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
