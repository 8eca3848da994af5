package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/history"
)

func value(p *float32) float32 {
	if p == nil {
		return -1
	}
	return *p
}

// Unknown is not zero: what the store did not say is absent, what this process rejected is there.
func TestRatesThatAreNotKnownAreAbsent(t *testing.T) {
	t.Parallel()
	accounts, log := &Accounts{last: map[string]reading{}}, drops.NewLog()
	view := View{Store: &fakeStore{}, Accounts: accounts, Drops: log, Health: &fakeHealth{}}
	s := New(Config{Listen: "127.0.0.1:8081", Source: func() View { return view }}, zap.NewNop())
	now := time.Unix(1_800_000_000, 0)
	s.sweep.now = func() time.Time { return now }
	rates := func(seconds int, answers bool) string {
		for range seconds {
			now = now.Add(time.Second)
			log.Of("default").CountOne(drops.StoreUnavailable, 7)
			if answers {
				accounts.last["default"] = reading{Overview: partition.Overview{Ledger: partition.Ledger{Accepted: now.Unix()}}, at: now}
			}
			s.recorder.tick(now)
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
		"deliveries?limit=0":            `{"error":"bad_request"`,
		"drops?namespace=default&id=e1": `{"drops":[],"reasons":{}}`,
		"drops?reason=delivered":        `{"error":"bad_request"`,
	} {
		if w := ask(s, "GET", "/api/v1/"+path, "127.0.0.1:8081"); !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%s: got %s", path, w.Body)
		}
	}
}

// A reload may be of another store: the difference of two accounts says nothing then.
func TestARecorderStartsAnewWithOtherAccounts(t *testing.T) {
	t.Parallel()
	accounts := func() *Accounts { return &Accounts{last: map[string]reading{}} }
	one, other := accounts(), accounts()
	now := time.Unix(1_800_000_000, 0)
	view := View{Store: &fakeStore{}, Accounts: one}
	s := newSweep(func() View { return view }, nil)
	h := history.New()
	r := newRecorder(func() View { return view }, s, h)
	tick := func(total int64) float32 {
		now = now.Add(time.Second)
		view.Accounts.last["default"] = reading{Overview: partition.Overview{Ledger: partition.Ledger{Accepted: total}}, at: now}
		r.tick(now)
		_, series := h.Series("default", now)
		return value(series["accepted"][899])
	}
	if got := []float32{tick(100), tick(150), tick(150)}; got[0] != -1 || got[1] != 50 || got[2] != 0 {
		t.Errorf("got %v", got)
	}
	view.Accounts = other
	if got := []float32{tick(1000), tick(1007), tick(5)}; got[0] != -1 || got[1] != 7 || got[2] != -1 {
		t.Errorf("after a reload: got %v", got)
	}
}

func TestTheLogSaysWhenEntriesBeginToBeDroppedAndWhenThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		var evicted, lost atomic.Int64
		store := &fakeStore{overview: func() (partition.Overview, error) {
			return partition.Overview{Ledger: partition.Ledger{Evicted: evicted.Load(), Lost: lost.Load()}}, nil
		}}
		a := NewAccounts(store, prometheus.NewRegistry(), zap.New(core))
		evicted.Store(1000) // before this process started
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Stop(t.Context()) }()
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
		a := NewAccounts(&fakeStore{overview: func() (partition.Overview, error) {
			if away.Load() {
				time.Sleep(2 * time.Second)
				return partition.Overview{}, errors.New("time-out")
			}
			return partition.Overview{}, nil
		}}, prometheus.NewRegistry(), zap.NewNop())
		away.Store(true)
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = a.Stop(t.Context()) }()
		time.Sleep(3 * time.Second)
		away.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if len(a.latest()) != 1 {
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
	a := NewAccounts(&fakeStore{overview: func() (partition.Overview, error) { return o, failure }}, prometheus.NewRegistry(), zap.NewNop())
	if n := testutil.CollectAndCount(a.figures()); n != 0 {
		t.Errorf("%d metrics before the account was read", n)
	}
	a.read(t.Context())
	failure, o = errors.New("down"), partition.Overview{}
	a.read(t.Context()) // the last account stays
	err := testutil.CollectAndCompare(a.figures(), strings.NewReader(`
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
	if n := testutil.CollectAndCount(a.figures()); n != 15 {
		t.Errorf("%d metrics, want 7 outcomes and 8 others", n)
	}
}

func TestTheOldestAgeOfMetricsIsThatOfTheOldestEntry(t *testing.T) {
	t.Parallel()
	b := newBacklog(t)
	metric := b.sweep.ages()
	if n := testutil.CollectAndCount(metric, "spillway_account_oldest_age_seconds"); n != 0 {
		t.Errorf("an age is known before the first pass")
	}
	b.produce(t, 0, 300, func(i int) (int, time.Duration) { return 2, time.Duration(1+i%100) * time.Second })
	b.pass(t)
	age, known := b.sweep.oldestAge("default")
	if !known || age < 100*time.Second || age > 130*time.Second {
		t.Errorf("got %v, %v; want the 100 s of the oldest entry, and what the test took", age, known)
	}
	if in := b.sweep.oldestIn("default"); b.sweep.spaces["default"].rows[in] == nil || b.sweep.now().UnixMilli()-b.sweep.spaces["default"].rows[in].oldest < age.Milliseconds() {
		t.Errorf("it is in partition %q, which has no entry as old", in)
	}
	b.ahead = time.Hour // nothing was read since: an entry that may be gone grows no older
	if later, _ := b.sweep.oldestAge("default"); later != age {
		t.Errorf("the age went from %v to %v without a read", age, later)
	}
	if n := testutil.CollectAndCount(metric); n != 2 {
		t.Errorf("got %d metrics, want the age and max_age", n)
	}
}

func TestTheOldestAgeOfMetricsIsZeroWithoutEntries(t *testing.T) {
	t.Parallel()
	b := newBacklog(t)
	b.pass(t)
	if age, known := b.sweep.oldestAge("default"); !known || age != 0 {
		t.Errorf("got %v, %v; want 0", age, known)
	}
}

// Anybody can send wrong tokens, any number of them.
func TestWrongTokensAreNoRisk(t *testing.T) {
	t.Parallel()
	now := time.Now()
	v := View{Store: &fakeStore{}, Health: &fakeHealth{}, Drops: drops.NewLog(), Accounts: &Accounts{last: map[string]reading{}}}
	s := New(Config{Listen: "127.0.0.1:8081", Source: func() View { return v }}, zap.NewNop())
	s.sweep.now = func() time.Time { return now }
	tick := func(reason drops.Reason) string {
		v.Drops.Of("default").CountOne(reason, 500)
		now = now.Add(time.Second)
		v.Accounts.last["default"] = reading{at: now, changed: now}
		s.recorder.tick(now)
		return ask(s, "GET", "/api/v1/findings", "127.0.0.1:8081").Body.String()
	}
	tick(drops.Unauthorized)
	tick(drops.Unauthorized)
	if got := tick(drops.Unauthorized); !strings.Contains(got, `"level":"notice","namespace":"default"`) || !strings.Contains(got, `unauthorized"`) {
		t.Errorf("wrong tokens: %s", got)
	}
	if got := tick(drops.Stale); !strings.Contains(got, `"level":"risk","namespace":"default"`) {
		t.Errorf("stale entries: %s", got)
	}
	if v := s.history.Recent("default", now, 1)[history.Rejected]; v != 500 {
		t.Errorf("got %v rejected a second, want the stale ones", v)
	}
}
