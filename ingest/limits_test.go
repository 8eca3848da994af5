package ingest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// limit gives "default" one token of that name with limits, and one without.
func limit(maxEntries int, rate, newPartitions Quota) func(*Config) {
	return func(c *Config) {
		c.MaxEntries = maxEntries
		c.Tokens = map[string][]Token{"default": {
			{Hash: hashOf("bounded"), Name: "bounded", Rate: rate, NewPartitions: newPartitions},
			{Hash: hashOf("free"), Name: "free"},
		}}
	}
}

func lines(n int) string { return strings.Repeat("1\n", n) }

func TestATokenSendsAsManyEntriesAsItMay(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), limit(10, Quota{30, time.Hour}, Quota{}))
	send := func(token string, n int) *reply { return p.post("/v1/default/p", lines(n), asNDJSON, bearing(token)) }
	for range 2 {
		send("bounded", 10).expect(t, 200, "")
	}
	send("bounded", 5).expect(t, 200, "")
	r := send("bounded", 6) // 5 are left
	r.expect(t, 429, "rate_limited")
	// 30 an hour: the one that lacks takes two minutes.
	if after, _ := strconv.Atoi(r.header.Get("Retry-After")); r.body.Scope != "token" || after < 110 || after > 120 {
		t.Errorf("got scope %q, Retry-After %s, want token, 120", r.body.Scope, r.header.Get("Retry-After"))
	}
	send("bounded", 5).expect(t, 200, "") // a rejection costs nothing
	send("bounded", 1).expect(t, 429, "rate_limited")
	p.post("/v1/default", `{"partition":"q","data":1}`, asNDJSON, bearing("bounded")).expect(t, 429, "rate_limited")
	send("free", 10).expect(t, 200, "")

	if n := len(p.store.entries("default/p")); n != 40 {
		t.Errorf("%d entries are stored, want 40", n)
	}
	if got := p.metric("token_limited_total", "rate_limited", "default", "bounded"); got != 3 {
		t.Errorf("%v requests are counted as limited, want 3", got)
	}
}

func TestASpentTokenIsRejectedBeforeItsBodyIsLookedAt(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), limit(2, Quota{1, time.Hour}, Quota{}))
	p.post("/v1/default/p", lines(2), asNDJSON, bearing("bounded")).expect(t, 200, "")
	p.post("/v1/default/p", "not gzip", "Content-Encoding: gzip", bearing("bounded")).expect(t, 429, "rate_limited")
}

func TestAReadCountsAsAnEntryAgainstTheRate(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), limit(5, Quota{5, time.Hour}, Quota{}))
	read := func(method, token string) *reply { return p.do(method, "/v1/default/p", "", bearing(token)) }
	for range 4 {
		read("GET", "bounded").expect(t, 404, "no_such_partition")
	}
	p.post("/v1/default/p", "x", bearing("bounded")).expect(t, 200, "")
	r := read("GET", "bounded")
	if r.expect(t, 429, "rate_limited"); r.body.Scope != "token" || r.header.Get("Retry-After") == "" {
		t.Errorf("got scope %q, Retry-After %q", r.body.Scope, r.header.Get("Retry-After"))
	}
	p.post("/v1/default/p", "x", bearing("bounded")).expect(t, 429, "rate_limited")
	read("GET", "free").expect(t, 404, "no_such_partition")
	if got := p.metric("token_limited_total", "rate_limited", "default", "bounded"); got != 2 {
		t.Errorf("%v requests are counted as limited, want 2", got)
	}
}

func TestReadsPastTheirBoundAreRejectedAndEntriesStillTaken(t *testing.T) {
	t.Parallel()
	const clients = 4 * maxReads
	store := newFake()
	var reading, most atomic.Int64
	gate := make(chan struct{})
	store.stats = func(context.Context, *partition.Namespace, string) (partition.Stats, error) {
		n := reading.Add(1)
		defer reading.Add(-1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		<-gate
		return partition.Stats{}, nil
	}
	p := listenTCP(t, store, nil)
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	var served, rejected atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			switch r := p.do("GET", "/v1/default/p", ""); r.status {
			case 200:
				served.Add(1)
			case 503:
				if r.expect(t, 503, "overloaded"); r.header.Get("Retry-After") == "" {
					t.Error("no Retry-After")
				}
				rejected.Add(1)
			default:
				t.Errorf("got %d %s", r.status, r.raw)
			}
		})
	}
	eventually(t, func() bool { return rejected.Load() == clients-maxReads })
	p.post("/v1/default/p", "x").expect(t, 200, "")
	open()
	all.Wait()
	if most.Load() != maxReads || served.Load() != maxReads {
		t.Errorf("%d reads ran at once and %d were answered, want %d", most.Load(), served.Load(), maxReads)
	}
	if got := p.metric("refusals_total", "overloaded"); got != clients-maxReads {
		t.Errorf("%v rejections are counted, want %d", got, clients-maxReads)
	}
	p.do("GET", "/v1/default/p", "").expect(t, 200, "")
}

func TestARateSmallerThanARequestStillLetsItThrough(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), limit(1000, Quota{1, time.Second}, Quota{}))
	p.post("/v1/default/p", lines(1000), asNDJSON, bearing("bounded")).expect(t, 200, "")
}

func TestATokenBringsInAsManyNewPartitionsAsItMay(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), limit(1000, Quota{}, Quota{3, time.Hour}))
	send := func(name, token string) *reply { return p.post("/v1/default/"+name, "x", bearing(token)) }
	for _, name := range []string{"a", "b", "a", "c", "b", "a"} {
		send(name, "bounded").expect(t, 200, "")
	}
	r := send("d", "bounded")
	r.expect(t, 429, "too_many_partitions")
	if r.body.Scope != "token" || r.header.Get("Retry-After") != "1200" {
		t.Errorf("got scope %q, Retry-After %q, want token and 1200", r.body.Scope, r.header.Get("Retry-After"))
	}
	send("a", "bounded").expect(t, 200, "") // what it uses stays open
	send("d", "free").expect(t, 200, "")
	if got := p.store.entries("default/d"); len(got) != 1 {
		t.Errorf("d holds %d entries, want the other token's", len(got))
	}
}

func TestOfAMixedRequestOnlyNewPartitionsAreRejected(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), limit(1000, Quota{}, Quota{2, time.Hour}))
	send := func(names ...string) *reply {
		var body strings.Builder
		for _, name := range names {
			fmt.Fprintf(&body, "{\"partition\":%q,\"data\":1}\n", name)
		}
		return p.post("/v1/default", body.String(), asNDJSON, bearing("bounded"))
	}
	send("a").expect(t, 200, "")
	r := send("new", "b", "a", "new", "newer", "b")
	r.expect(t, 200, "")
	// "new" comes first and takes the place; b does not get one.
	if got, want := r.results(), "1:retry/too_many_partitions 4:retry/too_many_partitions 5:retry/too_many_partitions"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if r.body.Accepted != 3 || r.body.Rejected != 3 {
		t.Errorf("got %d accepted, %d rejected, want 3 and 3", r.body.Accepted, r.body.Rejected)
	}
	r = send("b", "c")
	r.expect(t, 429, "too_many_partitions")
	if r.body.Scope != "token" {
		t.Errorf("got scope %q", r.body.Scope)
	}
	r = p.post("/v1/default?ack=none", `{"partition":"d","data":1}`, asNDJSON, bearing("bounded"))
	r.expect(t, 202, "")
	if got := p.metric("unacked_losses_total", "default", "too_many_partitions"); got != 1 {
		t.Errorf("%v losses of ack=none are counted, want 1", got)
	}
	if got := p.metric("entries_total", "default", "too_many_partitions"); got != 6 {
		t.Errorf("%v entries are counted as rejected, want 6", got)
	}
}

func TestNewPartitionsAreMadeUpForAndThoseInUseStayFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNewPartitionLimiter(Quota{2, time.Minute})
		admit := func(name string, want bool) {
			t.Helper()
			if got := n.admit(name, time.Now()); got != want {
				t.Errorf("%s: got %t, want %t", name, got, want)
			}
		}
		admit("a", true)
		admit("b", true)
		admit("c", false)
		time.Sleep(31 * time.Second) // one is made up for
		admit("c", true)
		admit("d", false)
		for range 20 { // kept in use over several generations
			time.Sleep(4 * time.Minute)
			admit("a", true)
		}
		// b was forgotten long ago and is new, twice as many as may come at once.
		admit("x", true)
		admit("y", true)
		admit("b", false)
		admit("a", true)
	})
}

func TestWhatATokenRemembersIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNewPartitionLimiter(Quota{50_000, time.Second})
		for i := range 3 * n.maxNames {
			n.admit(strconv.Itoa(i), time.Now())
			if i%50_000 == 0 {
				time.Sleep(time.Second)
			}
		}
		if kept := len(n.current) + len(n.previous); kept > 2*n.maxNames || kept < n.maxNames {
			t.Errorf("it keeps %d names, want up to %d", kept, 2*n.maxNames)
		}
		if n.maxNames > 1<<20 {
			t.Errorf("a generation holds up to %d names", n.maxNames)
		}
	})
}

func TestAQuotaReadsAsItIsWritten(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"5000/s", "100/min", "20/h", "1/s", "1000000000/h"} {
		var q Quota
		if err := q.UnmarshalText([]byte(text)); err != nil || q.String() != text {
			t.Errorf("%s: got %s, %v", text, q, err)
		}
	}
	for _, text := range []string{"", "5000", "5000/", "/s", "5k/s", "0/s", "-1/s", "1.5/s", "5000/m", "5000/S", "5000 / s", "5000/s ", "2000000000/s"} {
		var q Quota
		if err := q.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "5000/s") {
			t.Errorf("%q: got %s, %v, want an error that says how", text, q, err)
		}
	}
}

func TestNamesInUseStayFreeHoweverManyTheyAre(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const names = 3000 // three hours' worth
		n := newNewPartitionLimiter(Quota{1000, time.Hour})
		known := 0
		for range 5 * 12 { // used every 5 minutes
			for i := range known {
				if !n.admit(strconv.Itoa(i), time.Now()) {
					t.Fatalf("%d of %d is rejected as new", i, known)
				}
			}
			for known < names && n.admit(strconv.Itoa(known), time.Now()) {
				known++
			}
			time.Sleep(5 * time.Minute)
		}
		if known != names {
			t.Errorf("%d names came in, want %d", known, names)
		}
	})
}
