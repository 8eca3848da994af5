package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
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

func TestTheAddressItselfSaysWhereThingsAre(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	r := p.do("GET", "/", "")
	var index map[string]string
	if err := json.Unmarshal([]byte(r.raw), &index); err != nil || r.status != 200 || index["service"] != "spillway" {
		t.Fatalf("got %d %s", r.status, r.raw)
	}
	if got := p.do("GET", index["ready"], ""); got.status != 200 {
		t.Errorf("%s: %d", index["ready"], got.status)
	}
	if r := p.post("/", "x"); r.status != 405 {
		t.Errorf("POST: %d %s", r.status, r.raw)
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

// reply is an answer, its body decoded when it is JSON.
type reply struct {
	status int
	header http.Header
	raw    string
	body   struct {
		Error, Message, Scope, Outcome string
		Accepted, Evicted, Rejected    int
		Depth, Capacity                *int
		Results                        []struct {
			I              int
			Result, Reason string
		}
	}
}

// results formats the results of entries compactly: "5:drop/stale 7:retry/unknown".
func (r *reply) results() string {
	var parts []string
	for _, e := range r.body.Results {
		parts = append(parts, fmt.Sprintf("%d:%s/%s", e.I, e.Result, e.Reason))
	}
	return strings.Join(parts, " ")
}

func readReply(t testing.TB, resp *http.Response) *reply {
	t.Helper()
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	r := &reply{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	if len(raw) > 0 {
		if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("a body of type %q: %s", ct, raw)
		}
		if err := json.Unmarshal(raw, &r.body); err != nil {
			t.Errorf("body %q: %v", raw, err)
		}
	}
	return r
}

func (r *reply) expect(t testing.TB, status int, code string) {
	t.Helper()
	if r.status != status || r.body.Error != code {
		t.Errorf("got %d %s, want %d %s", r.status, r.raw, status, code)
	}
}
