package partition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
)

// Stale partitions count towards max_partitions until they are expired, so a
// janitor goes on while it finds them: one command a partition, a page at a time.
func TestTheJanitorGoesOnWhileItFindsStalePartitions(t *testing.T) {
	t.Parallel()
	t.Run("nobody drains", func(t *testing.T) { expireBacklog(t, false) })
	t.Run("the namespace is paused", func(t *testing.T) { expireBacklog(t, true) })
}

func expireBacklog(t *testing.T, paused bool) {
	t.Parallel()
	partitions := 20_000
	if testing.Short() {
		partitions = 5_000
	}
	server := redistest.Start(t)
	policy := DefaultPolicy()
	policy.MaxAge, policy.Linger, policy.MaxPartitions = 100*time.Millisecond, 0, partitions
	s, err := Open(Config{URL: server.URL(), Prefix: "sw", Namespaces: map[string]Policy{"default": policy}}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, ns := t.Context(), s.Namespace("default")
	redistest.Until(t, time.Minute, "the store can be used", func() bool { _, err := s.Check(ctx); return err == nil })
	produce := func(occurred time.Duration, names ...string) error {
		now, _ := s.Now()
		groups := make([]*Group, len(names))
		for i, name := range names {
			groups[i] = &Group{Namespace: ns, Partition: name, Entries: [][]byte{AppendEntry(nil, now+occurred.Milliseconds(), nil, []byte("x"))}}
		}
		s.Produce(ctx, groups)
		for _, g := range groups {
			if g.Err != nil {
				return g.Err
			}
		}
		return nil
	}
	for i := 0; i < partitions; i += 500 {
		names := make([]string, 500)
		for n := range names {
			names[n] = fmt.Sprint("p", i+n)
		}
		if err := produce(0, names...); err != nil {
			t.Fatal(err)
		}
	}
	if paused {
		if err := s.Pause(ctx, ns, "", Pause{}); err != nil {
			t.Fatal(err)
		}
	}
	end, _ := s.Now()
	redistest.Until(t, time.Minute, "all are stale", func() bool {
		now, _ := s.Now()
		return now > end+2*policy.MaxAge.Milliseconds()
	})
	if err := produce(time.Hour, "fresh"); err == nil {
		t.Fatal("a partition beyond max_partitions was taken")
	}

	calls := func(command string) (n int64) {
		info := server.Client().Info(ctx, "commandstats").Val()
		if _, rest, ok := strings.Cut(info, "cmdstat_"+command+":calls="); ok {
			_, _ = fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n)
		}
		return n
	}
	evals, ranges := calls("evalsha"), calls("zrange")
	j := NewJanitor(s)
	j.round(ctx)
	pages := 1
	for ; len(j.backlogs) > 0; pages++ {
		if paused { // a drainer asks now and then, and expires nothing
			claim := s.Claim(ctx, []ClaimRequest{{Namespace: ns, Partition: fmt.Sprint("p", partitions-1), MaxBatches: 1}}, time.Minute)[0]
			if claim.Paused != NamespacePaused || claim.Expired > 0 {
				t.Fatalf("claim: %+v", claim)
			}
		}
		if rest := j.goOn(ctx); len(j.backlogs) > 0 && rest <= 0 {
			t.Fatalf("page %d: it rests for %v", pages, rest)
		}
		if pages == 20 {
			if err := produce(time.Hour, "fresh"); err != nil {
				t.Errorf("produce while it goes on: %v", err)
			}
		}
	}
	o, err := s.Overview(ctx, ns)
	if want := (Ledger{Accepted: int64(partitions) + 1, Expired: int64(partitions), Buffered: 1}); err != nil || o.Ledger != want || o.Partitions != 1 {
		t.Errorf("after %d pages: %+v and %d partitions (%v), want %+v", pages, o.Ledger, o.Partitions, err, want)
	}
	if residual, err := s.Audit(ctx, ns); residual != 0 || err != nil {
		t.Errorf("audit: %d %v", residual, err)
	}
	if n := calls("evalsha") - evals; n > int64(partitions/maxCallLeases*2+pages) {
		t.Errorf("%d scripts for %d partitions", n, partitions)
	}
	if n := calls("zrange") - ranges; n > int64(2*partitions/janitorPage) {
		t.Errorf("%d looks for %d partitions", n, partitions)
	}
}

// Paused partitions are put off for as long as their entries may live. A due time that
// is wrong is not as far ahead, and they must not hide it.
func TestPartitionsThatArePutOffHideNoWrongDueTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s, err := Open(Config{URL: server.URL(), Prefix: "sw", Namespaces: map[string]Policy{"default": DefaultPolicy()}}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, ns := t.Context(), s.Namespace("default")
	if _, err := s.Check(ctx); err != nil {
		t.Fatal(err)
	}
	now, _ := s.Now()
	var groups []*Group
	for i := range MaxPauses + 1 {
		name := fmt.Sprint("p", i)
		groups = append(groups, &Group{Namespace: ns, Partition: name, Entries: [][]byte{AppendEntry(nil, now, nil, []byte("x"))}})
		if i == MaxPauses {
			break // it is not paused
		}
		if err := s.Pause(ctx, ns, name, Pause{}); err != nil {
			t.Fatal(err)
		}
	}
	s.Produce(ctx, groups)
	c, ready := server.Client(), ns.shard(0).ready
	var due []redis.Z
	for _, g := range groups {
		if g.Err != nil {
			t.Fatal(g.Err)
		}
		due = append(due, redis.Z{Score: float64(now - 1), Member: g.Partition})
	}
	c.ZAdd(ctx, ready, due...)
	var claims []ClaimRequest
	for _, g := range groups[:MaxPauses] {
		claims = append(claims, ClaimRequest{Namespace: ns, Partition: g.Partition, MaxBatches: 1})
	}
	for _, claim := range s.Claim(ctx, claims, time.Minute) {
		if claim.Paused != PartitionPaused {
			t.Fatalf("%s: claim: %+v", claim.Partition, claim)
		}
	}
	wrong := fmt.Sprint("p", MaxPauses)
	c.ZAdd(ctx, ready, redis.Z{Score: float64(now + 60_000), Member: wrong})
	before := c.ZRangeWithScores(ctx, ready, 0, -1).Val()

	j := NewJanitor(s)
	for range MaxPauses/janitorPage + 1 {
		j.round(ctx)
	}
	after := map[any]float64{}
	for _, z := range c.ZRangeWithScores(ctx, ready, 0, -1).Val() {
		after[z.Member] = z.Score
	}
	for _, z := range before {
		if z.Member != wrong && after[z.Member] != z.Score {
			t.Errorf("%v was put off to %v, and is due at %v", z.Member, z.Score, after[z.Member])
		}
	}
	if ahead := int64(after[wrong]) - now; ahead > 30_000 {
		t.Errorf("the wrong due time is %d ms ahead still", ahead)
	}
}
