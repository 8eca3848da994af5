package partition_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// fill makes n partitions with one entry each.
func (s *site) fill(n int) {
	s.t.Helper()
	for i := 0; i < n; {
		var groups []*partition.Group
		for ; len(groups) < 512 && i < n; i++ {
			groups = append(groups, &partition.Group{Namespace: s.ns, Partition: fmt.Sprint("p", i), Entries: [][]byte{entry("x")}})
		}
		s.Produce(s.t.Context(), groups)
		for _, g := range groups {
			if g.Err != nil {
				s.t.Fatal(g.Err)
			}
		}
	}
}

// ledgerIs compares the ledger and what purges wrote into it.
func (s *site) ledgerIs(want partition.Ledger, purged int64) {
	s.t.Helper()
	var o partition.Overview
	var err error
	redistest.Until(s.t, patience, "the ledger is read", func() bool { // a shard may be left alone after what was lost before
		o, err = s.Overview(s.t.Context(), s.ns)
		return !errors.Is(err, partition.ErrUnavailable)
	})
	if err != nil || o.Ledger != want || o.Purged != purged {
		s.t.Errorf("got %+v, purged %d (%v); want %+v, purged %d", o.Ledger, o.Purged, err, want, purged)
	}
	if residual, err := s.Audit(s.t.Context(), s.ns); err != nil || residual != 0 {
		s.t.Errorf("audit: residual %d, %v", residual, err)
	}
}

// However many purges run beside producers and drainers, each entry counts once.
func TestEntriesThatArePurgedCountOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), func(p *partition.Policy) { p.Linger, p.Batch, p.Shards, p.Capacity = 0, 8, 3, 50 })
	usable(t, s.Store)
	ctx, stop := context.WithCancel(t.Context())
	var working, purging sync.WaitGroup
	var accepted, evicted, delivered, purged atomic.Int64
	for range 2 {
		working.Go(func() {
			for ctx.Err() == nil {
				g := &partition.Group{Namespace: s.ns, Partition: fmt.Sprint("p", rand.IntN(40))}
				for range rand.IntN(20) + 1 {
					g.Entries = append(g.Entries, entry("x"))
				}
				if s.Produce(t.Context(), []*partition.Group{g}); g.Err != nil {
					t.Error(g.Err)
				}
				accepted.Add(int64(g.Accepted))
				evicted.Add(int64(g.Evicted))
			}
		})
		working.Go(func() {
			for ctx.Err() == nil {
				claim := s.Claim(t.Context(), []partition.ClaimRequest{{Namespace: s.ns, Partition: fmt.Sprint("p", rand.IntN(40)), MaxBatches: 2}}, time.Minute)[0]
				l := claim.Lease
				switch {
				case claim.Err != nil:
					t.Error(claim.Err)
				case l == nil:
				case rand.IntN(2) == 0:
					done := make([]bool, len(l.Entries))
					for i := range done {
						done[i] = rand.IntN(2) == 0
					}
					r := &partition.Release{Lease: l, Attempt: l.Attempt, Done: done}
					if s.Release(t.Context(), []*partition.Release{r}); r.Err != nil {
						t.Error(r.Err)
					}
				default:
					commit := &partition.Commit{Lease: l, Lo: l.From, Hi: l.To, Delivered: len(l.Entries)}
					if s.Commit(t.Context(), []*partition.Commit{commit}); commit.Err != nil {
						t.Error(commit.Err)
					}
					delivered.Add(int64(len(l.Entries)))
				}
			}
		})
	}
	for i := range 2 {
		purging.Go(func() {
			for j := range seeds(15, 5) {
				result, err := s.Purge(ctx, s.ns, partition.PurgeRequest{Limit: int64(i * j * 10)})
				if err != nil {
					t.Error(err)
				}
				purged.Add(result.Entries)
			}
		})
	}
	purging.Wait()
	stop()
	working.Wait()
	o, err := s.Overview(t.Context(), s.ns)
	if err != nil {
		t.Fatal(err)
	}
	if o.Purged != purged.Load() || purged.Load() == 0 || o.Ledger.Evicted+o.Reclaimed != evicted.Load()+purged.Load() {
		t.Errorf("purges dropped %d and produces %d; the ledger says %d purged, %d evicted, %d reclaimed",
			purged.Load(), evicted.Load(), o.Purged, o.Ledger.Evicted, o.Reclaimed)
	}
	if o.Ledger.Accepted != accepted.Load() || o.Ledger.Delivered < delivered.Load() {
		t.Errorf("got %+v; %d were accepted, %d committed", o.Ledger, accepted.Load(), delivered.Load())
	}
	s.ledgerIs(o.Ledger, o.Purged)
}

// The reply of a purge that ran is lost: it says so, and its entries count once.
func TestAPurgeWithALostReplyIsUnknownAndCountsOnce(t *testing.T) {
	t.Parallel()
	for fault, dropped := range map[redistest.Fault]int64{redistest.LosesReply: 64, redistest.LosesRequest: 0} {
		server := redistest.Start(t)
		line := redistest.StartFaultLine(t, server.Addr)
		s := open(t, line.URL, nil)
		s.fill(200)
		calls := 0
		line.SetFor(lua.Purge.SHA, func() (redistest.Fault, float64) {
			if calls++; calls == 2 {
				return fault, 0
			}
			return redistest.Passes, 0
		})
		result, err := s.Purge(t.Context(), s.ns, partition.PurgeRequest{})
		if !errors.Is(err, partition.ErrUnknown) || result != (partition.PurgeResult{Entries: 64, Partitions: 64}) {
			t.Errorf("%s: got %+v, %v; want 64 entries and ErrUnknown", fault, result, err)
		}
		s.ledgerIs(partition.Ledger{Accepted: 200, Evicted: 64 + dropped, Buffered: 136 - dropped}, 64+dropped)
		result, err = s.Purge(t.Context(), s.ns, partition.PurgeRequest{})
		if err != nil || result != (partition.PurgeResult{Entries: 136 - dropped, Partitions: 136 - dropped, Complete: true}) {
			t.Errorf("%s: repeated: got %+v, %v; want the other %d", fault, result, err, 136-dropped)
		}
		s.ledgerIs(partition.Ledger{Accepted: 200, Evicted: 200}, 200)
	}
}

// A partition that comes due earlier during a purge is purged, too. What arrives where the
// purge was already stays.
func TestAPurgeFindsPartitionsThatMoveMeanwhile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	line := redistest.StartFaultLine(t, server.Addr)
	s := open(t, line.URL, func(p *partition.Policy) { p.Linger = time.Minute })
	other := open(t, server.URL(), func(p *partition.Policy) { p.Linger = time.Minute })
	const partitions, lastCall = 600, 10 // the purge lists 512 at first
	s.fill(partitions)
	c := server.Client()
	ready := "sw:{default.0}:ready"
	last := c.ZRange(t.Context(), ready, -1, -1).Val()[0]
	// It must be from before the purge.
	c.LSet(t.Context(), "sw:{default.0}:q:"+last, 0, partition.AppendEntry(nil, time.Now().Add(-time.Minute).UnixMilli(), nil, nil))
	calls := 0
	line.SetFor(lua.Purge.SHA, func() (redistest.Fault, float64) {
		switch calls++; calls {
		case 1:
			c.ZAddXX(context.Background(), ready, redis.Z{Score: float64(c.Time(context.Background()).Val().UnixMilli()), Member: last})
		case lastCall:
			if err := other.produce("p0", "new"); err != nil {
				t.Error(err)
			}
		}
		return redistest.Passes, 0
	})
	result, err := s.Purge(t.Context(), s.ns, partition.PurgeRequest{})
	if err != nil || result != (partition.PurgeResult{Entries: partitions, Partitions: partitions, Complete: true}) {
		t.Errorf("got %+v, %v; want all %d and not the new one", result, err, partitions)
	}
	s.ledgerIs(partition.Ledger{Accepted: partitions + 1, Evicted: partitions, Buffered: 1}, partitions)
}

// The call under way does not end with the context: its outcome would be unknown.
func TestAPurgeEndsBetweenTwoCallsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	line := redistest.StartFaultLine(t, server.Addr)
	s := open(t, line.URL, nil)
	s.fill(200)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	line.SetFor(lua.Purge.SHA, func() (redistest.Fault, float64) { stop(); return redistest.Passes, 0 })
	result, err := s.Purge(ctx, s.ns, partition.PurgeRequest{})
	if err != nil || result != (partition.PurgeResult{Entries: 64, Partitions: 64}) {
		t.Errorf("got %+v, %v; want the call under way and no more", result, err)
	}
	s.ledgerIs(partition.Ledger{Accepted: 200, Evicted: 64, Buffered: 136}, 64)
}

func TestAPurgeGoesOnBehindAForeignValue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	s.fill(3)
	server.Client().Del(t.Context(), "sw:{default.0}:m:p1")
	server.Client().Set(t.Context(), "sw:{default.0}:m:p1", "foreign", 0)
	for _, name := range []string{"", "p1"} {
		result, err := s.Purge(t.Context(), s.ns, partition.PurgeRequest{Partition: name})
		if !errors.Is(err, partition.ErrBroken) || name == "" && result.Entries != 2 || result.Complete {
			t.Errorf("%q: got %+v, %v; want the other two and ErrBroken", name, result, err)
		}
	}
}

func TestAPurgeNeedsACheck(t *testing.T) {
	t.Parallel()
	s := open(t, "redis://"+redistest.FreeAddr(t), nil)
	if _, err := s.Purge(t.Context(), s.ns, partition.PurgeRequest{}); !errors.Is(err, partition.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}

// A purge of many partitions takes a bounded number of them in a call, and a fifth of Redis's time.
func TestAPurgeIsBoundedPerCall(t *testing.T) {
	t.Parallel()
	partitions := 30_000
	if testing.Short() {
		partitions = 1_500
	}
	server := redistest.Start(t)
	s := open(t, server.URL(), nil)
	s.fill(partitions)
	c := server.Client()
	c.ConfigResetStat(t.Context())
	began := time.Now()
	result, err := s.Purge(t.Context(), s.ns, partition.PurgeRequest{})
	took := time.Since(began)
	if err != nil || result != (partition.PurgeResult{Entries: int64(partitions), Partitions: int64(partitions), Complete: true}) {
		t.Errorf("got %+v, %v", result, err)
	}
	s.ledgerIs(partition.Ledger{Accepted: int64(partitions), Evicted: int64(partitions)}, int64(partitions))
	stats := c.InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_evalsha")
	figure := func(name string) float64 {
		_, rest, _ := strings.Cut(stats, name+"=")
		text, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.ParseFloat(text, 64)
		return n
	}
	busy := time.Duration(figure("usec")) * time.Microsecond
	if calls, least := figure("calls"), float64(partitions)/64; calls < math.Floor(least) || calls > 1.2*least {
		t.Errorf("got %v script calls for %d partitions: %q", calls, partitions, stats)
	}
	if busy > took/4 {
		t.Errorf("Redis worked for %v of %v", busy, took)
	}
	t.Logf("%v, of which Redis worked %v in %v calls", took, busy, figure("calls"))
}
