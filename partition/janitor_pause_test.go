package partition

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
)

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
	c, ready := server.Client(), ns.shards[0].ready
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
		claims = append(claims, ClaimRequest{ns, g.Partition, 1})
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
