package admin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

func value(p *float32) float32 {
	if p == nil {
		return -1
	}
	return *p
}

func TestHistoryKeepsSecondsAndMinutes(t *testing.T) {
	t.Parallel()
	h := newHistory()
	start := time.Unix(1_800_000_000, 0) // a whole minute
	for second := range 120 {
		if second >= 30 && second < 60 {
			continue // nothing was read
		}
		p := noPoint()
		p[accepted], p[buffered] = 10, float32(second)
		h.add(start.Add(time.Duration(second)*time.Second), map[string]point{"a": p, "b": p})
	}
	now := start.Add(119 * time.Second)
	from, step, series := h.series("a", now, false)
	if step != time.Second || !from.Equal(now.Add(-899*time.Second)) || len(series["accepted"]) != 900 || len(series) != int(seriesCount) {
		t.Fatalf("from %v by %v, %d points of %d series", from, step, len(series["accepted"]), len(series))
	}
	at := func(name string, second int) float32 { return value(series[name][900-120+second]) }
	for second, want := range map[int]float32{0: 10, 29: 10, 30: -1, 59: -1, 60: 10, 119: 10} {
		if got := at("accepted", second); got != want {
			t.Errorf("second %d: got %v, want %v", second, got, want)
		}
	}
	if value(series["accepted"][0]) != -1 || at("oldest_age_ms", 119) != -1 || at("buffered", 119) != 119 {
		t.Error("missing values are not null, or a value is missing")
	}
	_, _, total := h.series("", now, false)
	if got := value(total["accepted"][899]); got != 20 {
		t.Errorf("the total of a rate is %v, want 20", got)
	}
	from, step, series = h.series("a", now, true)
	if step != time.Minute || !from.Equal(start.Add(-1438*time.Minute)) || len(series["accepted"]) != 1440 {
		t.Fatalf("from %v by %v, %d points", from, step, len(series["accepted"]))
	}
	if rate, depth := value(series["accepted"][1438]), value(series["buffered"][1438]); rate != 10 || depth != 29 {
		t.Errorf("the first minute: got a rate of %v and a depth of %v, want the mean 10 and the highest 29", rate, depth)
	}
	later := now.Add(time.Hour)
	if _, _, series = h.series("a", later, false); value(series["accepted"][0]) != -1 {
		t.Error("an hour later the last 15 minutes have values")
	}
}

func TestHistoryIsBoundedInNamespaces(t *testing.T) {
	t.Parallel()
	h := newHistory()
	points := map[string]point{}
	for i := range 3 * maxHistories {
		p := noPoint()
		p[accepted] = 1
		points[string(rune('a'+i))] = p
	}
	at := time.Unix(1_800_000_000, 0)
	h.add(at, points)
	if n := len(h.tracks); n > maxHistories+1 {
		t.Errorf("%d histories are kept", n)
	}
	if _, _, total := h.series("", at, false); value(total["accepted"][899]) != 3*maxHistories {
		t.Error("the total lacks namespaces")
	}
	for name := range points {
		if rate := h.recent(name, at, rateSpan)[accepted]; rate != 1 {
			t.Errorf("%q: the overview has a rate of %v, want 1", name, rate)
		}
	}
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
	h := newHistory()
	r := newRecorder(func() View { return view }, s, h)
	tick := func(total int64) float32 {
		now = now.Add(time.Second)
		view.Accounts.last["default"] = reading{Overview: partition.Overview{Ledger: partition.Ledger{Accepted: total}}, at: now}
		r.tick(now)
		_, _, series := h.series("default", now, false)
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
