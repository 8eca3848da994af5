package ingest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

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
