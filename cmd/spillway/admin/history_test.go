package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	zaplog "go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/space"
)

// Unknown is not zero: what the store did not say is absent, what this process rejected is there.
func TestRatesThatAreNotKnownAreAbsent(t *testing.T) {
	t.Parallel()
	answers, now := false, time.Unix(1_800_000_000, 0)
	store, log := &fakeStore{overview: func() (partition.Overview, error) {
		if !answers {
			return partition.Overview{}, errors.New("down")
		}
		return partition.Overview{Ledger: partition.Ledger{Accepted: now.Unix()}}, nil
	}}, drops.NewLog()
	s := New(Config{Listen: "127.0.0.1:8081", Source: func() View { return View{Store: store, Drops: log, Health: &fakeHealth{}} }}, zap.NewNop())
	s.observer.now = func() time.Time { return now }
	rates := func(seconds int, answer bool) string {
		answers = answer
		for range seconds {
			now = now.Add(time.Second)
			log.Of("default").CountOne(drops.StoreUnavailable, 7)
			s.observer.read(t.Context())
		}
		var o struct {
			Namespaces []struct{ Rates json.RawMessage }
		}
		if w := ask(s, "GET", "/api/v1/overview", "127.0.0.1:8081"); json.Unmarshal(w.Body.Bytes(), &o) != nil || len(o.Namespaces) != 1 {
			t.Fatalf("overview: %d %s", w.Code, w.Body)
		}
		return string(o.Namespaces[0].Rates)
	}
	const unknown = `{"rejected":7}`
	if got := rates(3, false); got != unknown {
		t.Errorf("before the first answer: %s", got)
	}
	if got := rates(3, true); !strings.Contains(got, `"accepted":1,"dead":0,`) {
		t.Errorf("while the store answers: %s", got)
	}
	if got := rates(10, false); !strings.Contains(got, `"accepted":1,`) {
		t.Errorf("10 s later: %s", got)
	}
	if got := rates(10, false); got != unknown {
		t.Errorf("20 s later: %s", got)
	}
}

func TestDeliveriesAreSampledBesideDrops(t *testing.T) {
	t.Parallel()
	log := drops.NewLog()
	s := New(Config{Listen: "127.0.0.1:8081", Source: func() View { return View{Store: &fakeStore{}, Drops: log, Health: &fakeHealth{}} }}, zap.NewNop())
	for i, id := range []string{"e1", "e2"} {
		log.Of("default").CountOne(drops.Delivered, 1)
		log.Of("default").Record(drops.Drop{At: time.UnixMilli(int64(1000 + i)), Reason: drops.Delivered, Partition: "p", ID: id, Entries: 1})
	}
	for path, want := range map[string]string{
		"deliveries?id=e2":              `{"deliveries":[{"at_ms":1001,"namespace":"default","partition":"p","id":"e2","reason":"delivered","entries":1}],"total":2,"sampled":2}`,
		"deliveries?namespace=other":    `{"error":"no_such_namespace"`,
		"deliveries?limit=0":            `{"error":"bad_limit"`,
		"drops?namespace=default&id=e1": `{"drops":[],"reasons":{}}`,
		"drops?reason=delivered":        `{"error":"bad_request"`,
	} {
		if w := ask(s, "GET", "/api/v1/"+path, "127.0.0.1:8081"); !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%s: got %s", path, w.Body)
		}
	}
}

// A reload may be of another store: the difference of two accounts says nothing then.
func TestAnObserverStartsAnewWithAnotherStore(t *testing.T) {
	t.Parallel()
	now, total := time.Unix(1_800_000_000, 0), int64(0)
	store := func() *fakeStore {
		return &fakeStore{overview: func() (partition.Overview, error) {
			return partition.Overview{Ledger: partition.Ledger{Accepted: total}}, nil
		}}
	}
	view := View{Store: store()}
	o := newObserver(func() View { return view }, zap.NewNop())
	o.now = func() time.Time { return now }
	read := func(accepted int64) float32 {
		now, total = now.Add(time.Second), accepted
		o.read(t.Context())
		_, rates, _ := o.seen(&o.buffers, "default", nil, now)
		if rate, known := rates["accepted"]; known {
			return rate
		}
		return -1
	}
	if got := []float32{read(100), read(150), read(150)}; got[0] != -1 || got[1] != 50 || got[2] != 25 {
		t.Errorf("got %v", got)
	}
	view.Store = store()
	if got := []float32{read(1000), read(1007), read(5)}; got[0] != -1 || got[1] != 7 || got[2] != -1 {
		t.Errorf("after a reload: got %v", got)
	}
}

// observe reads the ledgers of a store until the test ends.
func observe(t *testing.T, store Store, log *zap.Logger) *observer {
	o := newObserver(func() View { return View{Store: store} }, log)
	var running sync.WaitGroup
	ctx, end := context.WithCancel(t.Context())
	running.Go(func() { repeat(ctx, accountsEvery, o.read) })
	t.Cleanup(func() { end(); running.Wait() })
	return o
}

func TestTheLogSaysWhenEntriesBeginToBeDroppedAndWhenThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := zaplog.New(zap.InfoLevel)
		var evicted, lost atomic.Int64
		store := &fakeStore{overview: func() (partition.Overview, error) {
			return partition.Overview{Ledger: partition.Ledger{Evicted: evicted.Load(), Lost: lost.Load()}}, nil
		}}
		evicted.Store(1000) // before this process started
		observe(t, store, zap.New(core))
		time.Sleep(accountsEvery / 2)
		for range 90 { // 7 a second for a minute and a half
			evicted.Add(7)
			time.Sleep(accountsEvery)
		}
		lost.Add(1)
		time.Sleep(10 * time.Minute)
		synctest.Wait()

		var got []string
		for _, e := range logs.All() {
			fields := e.ContextMap()
			got = append(got, fmt.Sprintf("%s %v %v %s", e.Level, fields["outcome"], fields["entries"], strings.Split(e.Message, ":")[0]))
		}
		want := []string{
			"warn evicted 7 entries are evicted",
			"warn evicted 427 entries are evicted",
			"warn lost 1 entries are lost",
			"info evicted 630 no entries ended that way for a minute",
			"info lost 1 no entries ended that way for a minute",
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Calls that time out are no work of Redis: after an outage the accounts are soon read again, before
// operators are told that they are old.
func TestAnOutageDoesNotKeepTheAccountsOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		away.Store(true)
		o := observe(t, &fakeStore{overview: func() (partition.Overview, error) {
			if away.Load() {
				time.Sleep(2 * time.Second)
				return partition.Overview{}, errors.New("time-out")
			}
			return partition.Overview{}, nil
		}}, zap.NewNop())
		time.Sleep(3 * time.Second)
		away.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if o.spaces["default"].at.IsZero() {
			t.Error("not read again within 5s")
		}
	})
}

func TestTheAccountIsInTheMetricsAndNeverFalls(t *testing.T) {
	t.Parallel()
	o := partition.Overview{
		Ledger:    partition.Ledger{Accepted: 100, Delivered: 60, Evicted: 5, Expired: 4, Dead: 3, Lost: 2, Buffered: 26},
		Reclaimed: 1, DeadLetters: 3, DeadBytes: 600, DeadEvicted: 9, Partitions: 7, Overdue: 1500 * time.Millisecond,
	}
	var failure error
	store := &fakeStore{overview: func() (partition.Overview, error) { return o, failure }}
	a := newObserver(func() View { return View{Store: store} }, zap.NewNop())
	if n := testutil.CollectAndCount(a.metrics(), "spillway_account_buffered_entries"); n != 0 {
		t.Errorf("%d metrics before the account was read", n)
	}
	a.read(t.Context())
	failure, o = errors.New("down"), partition.Overview{}
	a.read(t.Context()) // the last account stays
	err := testutil.CollectAndCompare(a.metrics(), strings.NewReader(`
# HELP spillway_account_buffered_entries Entries stored now. The store's figure: the same in every process.
# TYPE spillway_account_buffered_entries gauge
spillway_account_buffered_entries{namespace="default"} 26
# HELP spillway_account_entries_total Entries by outcome, since the first one: accepted = delivered + evicted - reclaimed + expired + dead + lost + buffered. The store's figure: the same in every process.
# TYPE spillway_account_entries_total counter
spillway_account_entries_total{namespace="default",outcome="accepted"} 100
spillway_account_entries_total{namespace="default",outcome="dead"} 3
spillway_account_entries_total{namespace="default",outcome="delivered"} 60
spillway_account_entries_total{namespace="default",outcome="evicted"} 6
spillway_account_entries_total{namespace="default",outcome="expired"} 4
spillway_account_entries_total{namespace="default",outcome="lost"} 2
spillway_account_entries_total{namespace="default",outcome="reclaimed"} 1
# HELP spillway_account_overdue_seconds How long the first partition in the queue has been due. The store's figure: the same in every process.
# TYPE spillway_account_overdue_seconds gauge
spillway_account_overdue_seconds{namespace="default"} 1.5
`), "spillway_account_buffered_entries", "spillway_account_entries_total", "spillway_account_overdue_seconds")
	if err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(a.metrics()); n != 16 {
		t.Errorf("%d metrics, want 7 outcomes, 8 others and max_age", n)
	}
}

func TestTheOldestAgeOfMetricsIsThatOfTheOldestEntry(t *testing.T) {
	t.Parallel()
	b := newBacklog(t)
	metric := b.observer.metrics()
	age := func() time.Duration { return time.Duration(b.observer.spaces["default"].oldestAge) * time.Millisecond }
	if n := testutil.CollectAndCount(metric, "spillway_account_oldest_age_seconds"); n != 0 {
		t.Errorf("an age is known before the first pass")
	}
	b.produce(t, 0, 300, func(i int) (int, time.Duration) { return 2, time.Duration(1+i%100) * time.Second })
	b.pass(t)
	was := age()
	if was < 100*time.Second || was > 130*time.Second {
		t.Errorf("got %v; want the 100 s of the oldest entry, and what the test took", was)
	}
	if f := b.observer.spaces["default"]; f.rows[f.oldestIn] == nil || b.observer.now().UnixMilli()-f.rows[f.oldestIn].oldest < age().Milliseconds() {
		t.Errorf("it is in partition %q, which has no entry as old", f.oldestIn)
	}
	b.ahead = time.Hour // nothing was read since: an entry that may be gone grows no older
	if later := age(); later != was {
		t.Errorf("the age went from %v to %v without a read", was, later)
	}
	if n := testutil.CollectAndCount(metric, "spillway_account_oldest_age_seconds", "spillway_namespace_max_age_seconds"); n != 2 {
		t.Errorf("got %d metrics, want the age and max_age", n)
	}
}

func TestTheOldestAgeOfMetricsIsZeroWithoutEntries(t *testing.T) {
	t.Parallel()
	b := newBacklog(t)
	b.pass(t)
	if f := b.observer.spaces["default"]; f.completed == 0 || f.oldestAge != 0 {
		t.Errorf("got %v, %v; want 0", f.completed, f.oldestAge)
	}
}

func value(p *float32) float32 {
	if p == nil {
		return -1
	}
	return *p
}

// A namespace is recorded once a minute, however many processes read it; both kinds alike.
func TestTheHistoryIsThatOfTheStore(t *testing.T) {
	t.Parallel()
	server := redistest.StartWithClock(t)
	server.Advance(time.Duration(65-time.Now().Second()) * time.Second) // no minute ends by itself
	start := func() (*Server, *queued) {
		b := backendtest.Open(t, backend.Config{URL: server.URL()})
		jobs, err := job.Open(job.Config{Prefix: "sw", Volatile: true, Namespaces: map[string]job.Policy{"mail": job.DefaultPolicy()}}, b, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		store, err := partition.Open(partition.Config{Prefix: "sw", Backend: b, Namespaces: map[string]partition.Policy{"kart": partition.DefaultPolicy(), "chess": partition.DefaultPolicy()}}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Check(t.Context())
		if _, other := jobs.Check(t.Context()); err != nil || other != nil {
			t.Fatal(err, other)
		}
		s := New(Config{Listen: "127.0.0.1:8081", Source: func() View { return View{Store: store, Jobs: []JobStore{jobs}, Health: &fakeHealth{}} }}, zap.NewNop())
		return s, &queued{Server: s, t: t, store: jobs, ns: jobs.Namespace("mail"), lane: jobs.NewLane()}
	}
	one, q := start()
	other, _ := start()
	minute := func() {
		server.Advance(time.Minute)
		for _, s := range []*Server{one, other} {
			clear(s.observer.tables)
			s.observer.lastNames.Store(nil)
			s.observer.readAges(t.Context()) // which also learns the time
			s.observer.read(t.Context())
		}
	}
	minute()
	minute()
	q.publish("q", 0, "1", "2", "3")
	minute()
	minute()
	restarted, _ := start()
	for name, s := range map[string]*Server{"one": one, "other": other, "restarted": restarted} {
		s.observer.read(t.Context())
		last := func(query string, series ...string) (all []float32) {
			var h History
			w := ask(s, "GET", "/api/v1/history"+query, "127.0.0.1:8081")
			if err := json.Unmarshal(w.Body.Bytes(), &h); err != nil || w.Code != 200 || h.StepMS != 60_000 || h.Points != 1440 {
				t.Fatalf("%s: %d %s", name, w.Code, w.Body)
			}
			for _, name := range series {
				all = append(all, value(h.Series[name][1438]), value(h.Series[name][1439]))
			}
			return all
		}
		if got := last("?namespace=mail", "ready", "published", "dead"); !slices.Equal(got, []float32{3, 3, 0.05, 0, 0, 0}) {
			t.Errorf("%s: queues have %v", name, got)
		}
		if got := last("", "buffered", "accepted", "oldest_age_ms"); !slices.Equal(got, []float32{0, 0, 0, 0, 0, 0}) {
			t.Errorf("%s: the buffers have %v", name, got)
		}
		if w := ask(s, "GET", "/api/v1/history?namespace=no", "127.0.0.1:8081"); w.Code != 404 {
			t.Errorf("%s: got %d of no namespace", name, w.Code)
		}
	}
	if records := server.Client().LRange(t.Context(), "sw:{mail.0}:history", 0, -1).Val(); len(records) != 2 {
		t.Errorf("got %q of three minutes, of which the last changed nothing", records)
	}
}

func TestAMinuteWithoutARecordIsAsTheOneBeforeIt(t *testing.T) {
	t.Parallel()
	k := &kind{rates: []string{"accepted"}, gauges: []string{"buffered"}, oldest: "age"}
	got := map[string][]float32{}
	set := func(name string, at int, value float32) {
		if got[name] == nil {
			got[name] = slices.Repeat([]float32{-1}, space.HistoryKept)
		}
		got[name][at] = value
	}
	// Of another version, of the day before, then totals that rise, stay and fall.
	k.points([]space.Record{{Minute: 1, Figures: []int64{1}}, {Minute: 20, Figures: []int64{60, 5, 1_140_000}}, {Minute: 1993, Figures: []int64{180, 9, 119_520_000}},
		{Minute: 1998, Figures: []int64{500, 70, 0}}, {Minute: 1996, Figures: []int64{240, 0, 0}}, {Minute: 1997, Figures: []int64{0, 1, notKnown}}}, 1999, set)
	for name, want := range map[string][]float32{
		"accepted": {0, 2, 0, 0, 1, -1, 0, 0},
		"buffered": {5, 9, 9, 9, 0, 1, 1, 1},
		"age":      {1992*60_000 - 1_140_000, 60_000, 120_000, 180_000, 0, -1, -1, -1},
	} {
		last := got[name][space.HistoryKept-len(want):]
		if !slices.Equal(last, want) {
			t.Errorf("%s: got %v, want %v", name, last, want)
		}
	}
}

// Anybody can send wrong tokens, any number of them.
func TestWrongTokensAreNoRisk(t *testing.T) {
	t.Parallel()
	now := time.Now()
	store := &fakeStore{overview: func() (partition.Overview, error) { return partition.Overview{}, nil }}
	v := View{Store: store, Health: &fakeHealth{}, Drops: drops.NewLog()}
	s := New(Config{Listen: "127.0.0.1:8081", Source: func() View { return v }}, zap.NewNop())
	s.observer.now = func() time.Time { return now }
	found := func(reason drops.Reason) string {
		v.Drops.Of("default").CountOne(reason, 500)
		now = now.Add(time.Second)
		s.observer.read(t.Context())
		return ask(s, "GET", "/api/v1/findings", "127.0.0.1:8081").Body.String()
	}
	found(drops.Unauthorized)
	found(drops.Unauthorized)
	if got := found(drops.Unauthorized); !strings.Contains(got, `"level":"notice","namespace":"default"`) || !strings.Contains(got, `unauthorized"`) {
		t.Errorf("wrong tokens: %s", got)
	}
	if got := found(drops.Stale); !strings.Contains(got, `"level":"risk","namespace":"default"`) {
		t.Errorf("stale entries: %s", got)
	}
	_, rates, _ := s.observer.seen(&s.observer.buffers, "default", nil, now)
	if got := rates["rejected"]; got <= 0 || got >= 500 {
		t.Errorf("got %v rejected a second, want the stale ones of four", got)
	}
}

// An idle account rests for as long as other processes read it; nobody who judges meanwhile takes it for unread.
func TestAnAccountThatRestsIsNotLate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	f := &figures{reading: reading{at: now.Add(-17 * time.Second)}, changed: now.Add(-time.Hour)}
	if late := f.late(now, 20*time.Second, watched{}); late > 0 {
		t.Errorf("it is late by %v", late)
	}
	if late := f.late(now, 20*time.Second, watched{since: now.Add(-3 * time.Second), last: now}); late != 3*time.Second {
		t.Errorf("since somebody looks it is late by %v", late)
	}
}

func TestANamespaceMadeAgainAsAnotherKindBeginsAnew(t *testing.T) {
	t.Parallel()
	b := newBacklog(t)
	o := b.observer
	o.spaces["default"] = &figures{of: &o.queues}
	o.tick(t.Context())
	if f := o.spaces["default"]; f == nil || f.of != &o.buffers || f.completed == 0 {
		t.Errorf("it has %+v", f)
	}
}
