package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

// expectAccount compares the account of entries that were answered before they were stored with
// /readyz and the metric.
func (p *port) expectAccount(t *testing.T, stored, rejected, lost int) {
	t.Helper()
	want := fmt.Sprintf(`{"taken":%d,"waiting":0,"stored":%d,"rejected":%d,"lost":%d}}`, stored+rejected+lost, stored, rejected, lost)
	if got := string(p.unacked.appendAccount([]byte("{"))); got != want {
		t.Errorf("account %s, want %s", got, want)
	}
	for what, n := range map[string]int{"stored": stored, "rejected": rejected, "lost": lost} {
		got := p.metric("unacked_entries_total", "default", what) + p.metric("unacked_entries_total", "small", what)
		if got != float64(n) {
			t.Errorf("the metric says %v are %s, want %d", got, what, n)
		}
	}
}

func TestAcceptNowHasThreeSpellings(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), func(c *Config) { c.NoAck = map[string]bool{"small": true} })
	for _, c := range []struct {
		path, prefer string
		status       int
		applied      string
	}{
		{"/v1/default/p", "", 200, ""},
		{"/v1/default/p?ack=none", "", 202, ""},
		{"/v1/default/p", "respond-async", 202, "respond-async"},
		{"/v1/default/p?x=1", "wait=5, Respond-Async; a=b, return=minimal", 202, "respond-async"},
		{"/v1/default/p?ack=commit", "respond-async", 200, ""},
		{"/v1/default/p?ack=none", "respond-async", 202, "respond-async"},
		{"/v1/small/p", "", 202, ""},
		{"/v1/small/p?ack=commit", "", 200, ""},
		{"/v1/small/p", "return=minimal", 202, ""},
		{"/beacon/default/p", "", 204, ""},
	} {
		r := p.post(c.path, "x", "Prefer: "+c.prefer)
		if r.status != c.status || r.header.Get("Preference-Applied") != c.applied || c.status > 200 && r.raw != "" {
			t.Errorf("%s, Prefer %q: got %d %q %q", c.path, c.prefer, r.status, r.header.Get("Preference-Applied"), r.raw)
		}
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.expectAccount(t, 7, 0, 0)
}

func TestEventsOfSDKsOfANamespaceWithoutAckAreAnsweredAsIfTheyWereStored(t *testing.T) {
	t.Parallel()
	store := newFake()
	entered, open := store.blockProduce()
	defer open()
	p := listen(t, store, func(c *Config) {
		withSDKs(c)
		longProduceTimeout(c)
		c.NoAck = map[string]bool{"default": true}
	})
	body := `{"api_key":"wk","events":[{"event_type":"e"},{"event_type":"f"},7]}`
	r := p.post("/amplitude/2/httpapi", body, asJSON)
	if r.status != 200 || !strings.Contains(r.raw, `"events_ingested":2`) {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	<-entered
	open()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.expectAccount(t, 2, 1, 0)
}

// An outage is over after so many calls of the store.
func outage(store *fakeStore, calls int32, err error) {
	var n atomic.Int32
	store.produce = func(ctx context.Context, groups []*partition.Group) {
		if n.Add(1) > calls {
			store.keep(ctx, groups)
			return
		}
		failWith(err)(ctx, groups)
	}
}

func TestAnOutageCostsNothingOfWhatWasAcceptedAndKeepsItsOrder(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		partition.ErrUnavailable, partition.ErrFull, partition.ErrUnknown, partition.ErrUnreachable, errOverloaded,
	} {
		store := newFake()
		outage(store, 5, err)
		p := listen(t, store, nil)
		for i := range 60 {
			p.post(fmt.Sprintf("/v1/default/p%d?ack=none", i%3), fmt.Sprintf("%d\n%d", 2*i, 2*i+1), asNDJSON).expect(t, 202, "")
		}
		p.post("/v1/default?ack=none", "7\n"+`{"partition":"p0","data":120}`, asNDJSON).expect(t, 202, "")
		p.post("/v1/default?ack=none", "[1", asJSON).expect(t, 400, "bad_json")
		if err := p.Stop(t.Context()); err != nil { // which waits for what is answered
			t.Fatal(err)
		}
		p.expectAccount(t, 121, 1, 0)
		for i, want := range []int{41, 40, 40} {
			list := store.entries(fmt.Sprint("default/p", i))
			last := -1
			for _, raw := range list {
				var n int
				if _, err := fmt.Sscan(raw[strings.LastIndexByte(raw, ' ')+1:], &n); err != nil || n <= last {
					t.Fatalf("%q comes after %d", raw, last)
				}
				last = n
			}
			if len(list) != want {
				t.Errorf("%v: p%d has %d entries, want %d", err, i, len(list), want)
			}
		}
	}
}

func TestWhatTheStoreMayHaveIsRepeatedUnderOneKey(t *testing.T) {
	t.Parallel()
	store := newFake()
	var keys []string
	store.produce = func(ctx context.Context, groups []*partition.Group) {
		keys = append(keys, groups[0].IdempotencyKey)
		store.keep(ctx, groups)
		if len(keys) < 5 {
			failWith(partition.ErrUnknown)(ctx, groups)
		}
	}
	p := listen(t, store, nil)
	p.post("/v1/default/p?ack=none", "x").expect(t, 202, "")
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.expectAccount(t, 1, 0, 0)
	if n := len(store.entries("default/p")); n != 2 || keys[0] != "" || keys[1] == "" || keys[1] != keys[4] {
		t.Errorf("stored %d times under keys %q", n, keys)
	}
}

func TestARepeatWaitsForRoomForItsKeyAndAKeyOfAClientDoesNot(t *testing.T) {
	t.Parallel()
	store := newFake()
	calls := map[string]int{}
	store.produce = func(ctx context.Context, groups []*partition.Group) {
		var kept []*partition.Group
		for _, g := range groups {
			calls[g.Partition]++
			switch n := calls[g.Partition]; {
			case n == 1:
				g.Err = partition.ErrUnknown
			case n < 4:
				g.Err = partition.ErrTooManyKeys
			default:
				kept = append(kept, g)
			}
		}
		store.keep(ctx, kept)
	}
	p := listen(t, store, func(c *Config) { c.Lanes = 1 })
	p.post("/v1/default/p?ack=none", "x").expect(t, 202, "")
	p.post("/v1/default/keyed?ack=none", "x", "Idempotency-Key: k").expect(t, 202, "")
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.expectAccount(t, 1, 1, 0)
	if n := len(store.entries("default/p")); n != 1 || calls["p"] != 4 || calls["keyed"] != 2 {
		t.Errorf("%d entries after calls %v", n, calls)
	}
}

func TestKeysOfAcceptedRequestsHoldThroughAnOutage(t *testing.T) {
	t.Parallel()
	store := newFake()
	outage(store, 3, partition.ErrUnknown)
	p := listen(t, store, nil)
	for range 3 {
		p.post("/v1/default/p?ack=none", "x", "Idempotency-Key: k").expect(t, 202, "")
		p.post("/v1/default/p?ack=none", "y").expect(t, 202, "")
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.expectAccount(t, 6, 0, 0)
	if n := len(store.entries("default/p")); n != 4 {
		t.Errorf("%d entries are stored, want 3 of y and 1 of x", n)
	}
}

func TestAcceptedRequestsWithKeysShareAFlush(t *testing.T) {
	t.Parallel()
	store := newFake()
	entered, open := store.blockProduce()
	defer open()
	p := listen(t, store, func(c *Config) {
		longProduceTimeout(c)
		c.Lanes = 1
	})
	p.post("/v1/default/p?ack=none", "0").expect(t, 202, "")
	<-entered
	for i := range 100 {
		for range 2 {
			p.post("/v1/default/p?ack=none", fmt.Sprint(i), fmt.Sprint("Idempotency-Key: k", i)).expect(t, 202, "")
		}
		p.post("/v1/default/p?ack=none", "x").expect(t, 202, "")
		p.post("/v1/default?ack=none", `[{"partition":"p","data":1},{"partition":"q","data":1}]`, asJSON,
			fmt.Sprint("Idempotency-Key: both", i)).expect(t, 202, "")
	}
	open()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.expectAccount(t, 501, 0, 0)
	if n, m := len(store.entries("default/p")), len(store.entries("default/q")); n != 301 || m != 100 || store.calls != 2 {
		t.Errorf("%d and %d entries after %d flushes, want 301 and 100 after 2", n, m, store.calls)
	}
}

func TestAPartIsNotSentAfterOneOfItsPartitionThatFailedInAnEarlierFlush(t *testing.T) {
	t.Parallel()
	store := newFake()
	outage(store, 1, partition.ErrUnavailable)
	cfg := DefaultConfig()
	cfg.Lanes = 1
	longProduceTimeout(&cfg)
	s, err := New(cfg, store, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	s.lanes.start()
	defer func() { _ = s.lanes.stop(context.Background()) }()
	b := &batch{request: newRequest()}
	b.namespace = store.namespaces["default"]
	for _, name := range []string{"p", "p", "q"} { // one flush does not take two of them
		b.parts = append(b.parts, part{
			request: b.request, name: "default/" + name, entries: slices.Repeat([][]byte{partition.AppendEntry(nil, now, nil, []byte("x"))}, 3000), count: 3000,
		})
	}
	b.link()
	s.lanes.put(b.request)
	<-b.done
	p := b.parts
	if !errors.Is(p[0].err, partition.ErrUnavailable) || p[1].outcome() != outAgain || p[2].err != nil {
		t.Errorf("got %v, %v and %v: the second was to be stored later, the third now", p[0].err, p[1].err, p[2].err)
	}
	if n := len(store.entries("default/p")); n != 0 {
		t.Errorf("%d entries came before those that failed", n)
	}
}

func TestAcceptedEntriesThatTheStoreRejectsForGoodAreCounted(t *testing.T) {
	t.Parallel()
	store := newFake()
	store.failPartitions(map[string]error{"full": partition.ErrTooManyPartitions, "foreign": partition.ErrBroken, "far": partition.ErrUnconfirmed})
	p := listen(t, store, nil)
	for _, name := range []string{"full", "foreign", "far", "good"} {
		p.post("/v1/default/"+name+"?ack=none", "1\n2", asNDJSON).expect(t, 202, "")
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.expectAccount(t, 4, 4, 0)
	if got := p.metric("entries_total", "default", "too_many_partitions"); got != 2 {
		t.Errorf("%v entries are counted as too_many_partitions", got)
	}
}

func TestANamespaceOfAnotherPolicyWaitsForItsFormerBatchesAndNoEmptyQueueIsKept(t *testing.T) {
	t.Parallel()
	store := newFake()
	var policies []int
	keep := store.produce
	store.produce = func(ctx context.Context, groups []*partition.Group) {
		policies = append(policies, groups[0].Namespace.Policy.Capacity)
		keep(ctx, groups)
	}
	entered, open := store.blockProduce()
	defer open()
	p := listen(t, store, func(c *Config) {
		longProduceTimeout(c)
		c.Lanes = 1
	})
	p.post("/v1/default/p?ack=none", "0").expect(t, 202, "")
	<-entered
	p.post("/v1/default/p?ack=none", "1").expect(t, 202, "")
	policy := partition.DefaultPolicy()
	policy.Capacity = 2
	store.namespaces["default"] = &partition.Namespace{Name: "default", Policy: policy}
	p.post("/v1/default/p?ack=none", "2").expect(t, 202, "")
	open()
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.expectAccount(t, 3, 0, 0)
	list := store.entries("default/p")
	if len(list) != 2 || !strings.HasSuffix(list[0], "1") || !strings.HasSuffix(list[1], "2") || fmt.Sprint(policies) != "[10000 10000 2]" {
		t.Errorf("entries %q, stored under capacities %v", list, policies)
	}
	if n := len(p.unacked.queues); n != 0 {
		t.Errorf("%d queues are kept", n)
	}
}

func TestAcceptedEntriesAreLostOnceTheyAreOld(t *testing.T) {
	t.Parallel()
	store := newFake()
	store.produce = failWith(partition.ErrUnavailable)
	store.namespaces["default"].Policy.MaxAge = 50 * time.Millisecond
	p, log := listenDrops(t, store, nil)
	p.post("/v1/default/p?ack=none", "1\n2", asNDJSON).expect(t, 202, "")
	eventually(t, func() bool { return p.metric("unacked_entries_total", "default", "lost") == 2 })
	p.expectAccount(t, 0, 0, 2)
	if got := log.Totals("default")[drops.Overloaded].Entries; got != 2 {
		t.Errorf("%d of 2 lost entries are among the drops", got)
	}
	if r := p.do("GET", "/readyz", ""); r.raw != `{"status":"ok","unacked":{"taken":2,"waiting":0,"stored":0,"rejected":0,"lost":2}}` {
		t.Errorf("got %s", r.raw)
	}
}

func TestWhatTheStoreMayHaveIsNotRepeatedOnceItMayHaveForgottenTheKey(t *testing.T) {
	t.Parallel()
	store := newFake()
	calls := map[string]int{}
	store.produce = func(ctx context.Context, groups []*partition.Group) {
		for _, g := range groups {
			if calls[g.Partition]++; g.Partition == "away" && calls["away"] < 3 {
				g.Err = partition.ErrUnavailable // which has not run
				continue
			}
			store.keep(ctx, []*partition.Group{g})
			g.Err = partition.ErrUnknown
		}
	}
	p, log := listenDrops(t, store, func(c *Config) { c.Lanes = 1 })
	if got, want := p.unacked.repeatFor, 110*time.Second; got != want {
		t.Errorf("repeats for %v, want %v", got, want)
	}
	p.unacked.repeatFor = -1
	p.post("/v1/default/p?ack=none", "x").expect(t, 202, "")
	p.post("/v1/default/keyed?ack=none", "x", "Idempotency-Key: k").expect(t, 202, "")
	p.post("/v1/default/away?ack=none", "x").expect(t, 202, "")
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.expectAccount(t, 0, 0, 3)
	if calls["p"] != 1 || calls["keyed"] != 1 || calls["away"] != 3 {
		t.Errorf("tried %v times", calls)
	}
	if got := log.Totals("default")[drops.Unknown].Entries; got != 3 {
		t.Errorf("%d of 3 entries are dropped as unknown", got)
	}
}

func TestMetricsFollowTheConventions(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	p.post("/v1/default/p", "x")
	problems, err := testutil.GatherAndLint(p.reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func TestTwoServersOnOneRegistryAreAnErrorNotAPanic(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	if _, err := New(DefaultConfig(), newFake(), reg, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	_, err := New(DefaultConfig(), newFake(), reg, zap.NewNop())
	var already prometheus.AlreadyRegisteredError
	if !errors.As(err, &already) {
		t.Errorf("got %v", err)
	}
}

func TestOneRequestInEightHasItsLatencyObserved(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	for range 80 {
		p.post("/v1/default/p", "x").expect(t, 200, "")
	}
	p.client.CloseIdleConnections()
	for range 80 {
		p.post("/v1/default/p", "x", "Connection: close").expect(t, 200, "")
	}
	if got := p.metric("request_seconds"); got < 10 || got > 40 {
		t.Errorf("%v of 160 requests were observed", got)
	}
}

// listenDrops is listen with a log of what is dropped.
func listenDrops(t *testing.T, store Store, edit func(*Config)) (*port, *drops.Log) {
	log := drops.NewLog()
	return listen(t, store, func(c *Config) {
		if edit != nil {
			edit(c)
		}
		c.Drops = log
	}), log
}

func TestRejectedEntriesAreSampledWithWhatIsKnownOfThem(t *testing.T) {
	t.Parallel()
	p, log := listenDrops(t, newFake(), func(c *Config) { c.MaxEntry = 100 })
	old := now - 10*time.Hour.Milliseconds()
	p.post("/v1/default", fmt.Sprintf(`[
		{"partition":"kart","id":"old","ts":%d,"data":1},
		{"partition":"kart","id":"big","data":"%s"},
		{"partition":"kart","id":"not an id","data":1},
		{"partition":"<script>","id":"lost","data":1},
		{"partition":"kart","ts":"noon","data":1},
		7,
		{"partition":"kart","id":"good","data":1}]`, old, strings.Repeat("x", 200)),
		asJSON, fmt.Sprint("X-Sent-At: ", now)).expect(t, 200, "")
	for reason, want := range map[drops.Reason]drops.Drop{
		drops.Stale:        {Partition: "kart", ID: "old", Age: 10 * time.Hour},
		drops.TooLarge:     {Partition: "kart", ID: "big"},
		drops.BadID:        {Partition: "kart"},
		drops.BadPartition: {ID: "lost", Detail: `"<script>"`},
		drops.BadTS:        {},
		drops.BadItem:      {},
	} {
		list := log.Recent(drops.Query{Reason: reason})
		want.Namespace, want.Reason, want.Entries = "default", reason, 1
		if len(list) == 1 {
			want.At = list[0].At
		}
		if len(list) != 1 || list[0] != want || p.Rejected("default")[reason] != 1 {
			t.Errorf("%s: got %+v of %+v, want %+v", reason, list, p.Rejected("default"), want)
		}
	}
	p.post("/v1/default/kart", "1", "X-Client-Discards: queue_overflow=23").expect(t, 200, "")
	list := log.Recent(drops.Query{Reason: drops.ClientDiscarded})
	if len(list) != 1 || list[0].Entries != 23 || list[0].Partition != "kart" || list[0].Detail != "queue_overflow" {
		t.Errorf("discards of a client: %+v", list)
	}
	if len(p.Rejected("default")) != 6 {
		t.Errorf("rejected %+v: discards of a client are none", p.Rejected("default"))
	}
}

func TestEveryDropIsCountedThoughFewAreSampled(t *testing.T) {
	t.Parallel()
	p, log := listenDrops(t, newFake(), nil)
	for range 20 {
		p.post("/v1/default/p", "["+strings.Repeat(`"x",`, 499)+`1]`, asJSON).expect(t, 200, "")
		p.post("/v1/default", "["+strings.Repeat(`7,`, 499)+`7]`, asJSON)
	}
	if got := log.Totals("default")[drops.BadItem]; got.Entries != 20*500 || got.Sampled != 128 {
		t.Errorf("got %+v, want 10000 entries and 128 samples", got)
	}
}

func TestFailedPartsAreSampledOnceAndNotAgainAsTheirRequest(t *testing.T) {
	t.Parallel()
	for err, reason := range map[error]drops.Reason{
		partition.ErrFull: drops.StoreFull, partition.ErrUnknown: drops.Unknown, partition.ErrUnavailable: drops.StoreUnavailable,
		partition.ErrTooManyPartitions: drops.TooManyPartitions,
	} {
		store := newFake()
		store.produce = failWith(err)
		p, log := listenDrops(t, store, nil)
		p.post("/v1/default/p", `[1,2,3]`, asJSON)
		p.post("/v1/default", `[{"partition":"q","id":"one","data":1}]`, asJSON)
		if total := log.Totals("default"); total[reason].Entries != 4 || len(total) != 1 {
			t.Errorf("%v: totals %+v", err, total)
		}
		if list := log.Recent(drops.Query{ID: "one"}); len(list) != 1 || list[0].Partition != "q" || list[0].Detail != err.Error() {
			t.Errorf("%v: %+v", err, list)
		}
	}
}

func TestRequestsRejectedAsAWholeAreSampled(t *testing.T) {
	t.Parallel()
	p, log := listenDrops(t, newFake(), withLimits(10, Quota{1, time.Hour}, Quota{}))
	p.post("/v1/default/p", lines(10), asNDJSON, bearerHeader("bounded")).expect(t, 200, "")
	p.post("/v1/default/p", lines(3), asNDJSON, bearerHeader("bounded")).expect(t, 429, "rate_limited")
	p.do("GET", "/v1/default/p", "", bearerHeader("bounded")).expect(t, 429, "rate_limited") // no entry
	p.post("/v1/default/p", "[1", asJSON, bearerHeader("free")).expect(t, 400, "bad_json")
	p.post("/v1/default/p", lines(11), asNDJSON, bearerHeader("free")).expect(t, 413, "too_many_entries")
	p.post("/v1/default/p", lines(1), asNDJSON).expect(t, 401, "unauthorized")
	p.post("/v1/nobody/p", lines(1), asNDJSON)
	want := map[drops.Reason]string{
		drops.RateLimited: "rate_limited: ", drops.BadRequest: "bad_json: ", drops.TooLarge: "too_many_entries: ", drops.Unauthorized: "unauthorized: ",
	}
	if got := p.Rejected("default"); len(got) != len(want) {
		t.Errorf("rejected %+v", got)
	}
	for reason, detail := range want {
		list := log.Recent(drops.Query{Reason: reason})
		if len(list) != 1 || list[0].Partition != "p" || !strings.HasPrefix(list[0].Detail, detail) || p.Rejected("default")[reason] != 1 {
			t.Errorf("%s: %+v", reason, list)
		}
	}
}
