package ingest

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition"
)

func TestARequestForStatsCountsAsOneEntryAgainstTheRate(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), withLimits(5, Quota{5, time.Hour}, Quota{}))
	read := func(method, token string) *reply { return p.do(method, "/v1/default/p", "", bearerHeader(token)) }
	for range 4 {
		read("GET", "bounded").expect(t, 404, "no_such_partition")
	}
	p.post("/v1/default/p", "x", bearerHeader("bounded")).expect(t, 200, "")
	r := read("GET", "bounded")
	if r.expect(t, 429, "rate_limited"); r.body.Scope != "token" || r.header.Get("Retry-After") == "" {
		t.Errorf("got scope %q, Retry-After %q", r.body.Scope, r.header.Get("Retry-After"))
	}
	p.post("/v1/default/p", "x", bearerHeader("bounded")).expect(t, 429, "rate_limited")
	read("GET", "free").expect(t, 404, "no_such_partition")
	if got := p.metric("token_limited_total", "rate_limited", "default", "bounded"); got != 2 {
		t.Errorf("%v requests are counted as limited, want 2", got)
	}
}

func TestStatsAndTheirErrors(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, nil)
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{nil, 200, ""}, {partition.ErrNoPartition, 404, "no_such_partition"}, {partition.ErrFull, 503, "store_full"},
		{partition.ErrTooManyReads, 503, "overloaded"},
		{partition.ErrUnknown, 503, "store_unavailable"}, {partition.ErrBroken, 503, "store_unavailable"},
	} {
		store.stats = func(_ context.Context, ns *partition.Namespace, name string) (partition.Stats, error) {
			if ns.Name != "default" || name != "p" {
				t.Errorf("asked for %s/%s", ns.Name, name)
			}
			return partition.Stats{Depth: 2, Capacity: 7, OldestAge: 1500 * time.Millisecond, Accepted: 3}, c.err
		}
		r := p.do("GET", "/v1/default/p", "")
		if r.status != c.status || r.body.Error != c.code || r.body.Outcome != "" {
			t.Errorf("%v: got %d %s", c.err, r.status, r.raw)
		}
		if c.err == nil && r.raw != `{"namespace":"default","partition":"p","depth":2,"capacity":7,"leased":false,"oldest_age_ms":1500,"since_birth":{"accepted":3,"evicted":0,"expired":0}}` {
			t.Errorf("got %s", r.raw)
		}
		if head := p.do("HEAD", "/v1/default/p", ""); head.status != c.status || head.raw != "" {
			t.Errorf("HEAD: got %d %q", head.status, head.raw)
		}
	}
}
