package history

import (
	"testing"
	"time"
)

func value(p *float32) float32 {
	if p == nil {
		return -1
	}
	return *p
}

func TestHistoryKeepsSeconds(t *testing.T) {
	t.Parallel()
	h := New()
	start := time.Unix(1_800_000_000, 0) // a whole minute
	for second := range 120 {
		if second >= 30 && second < 60 {
			continue // nothing was read
		}
		p := NoPoint()
		p[Accepted], p[Buffered] = 10, float32(second)
		h.Add(start.Add(time.Duration(second)*time.Second), map[string]Point{"a": p, "b": p})
	}
	now := start.Add(119 * time.Second)
	from, series := h.Series("a", now)
	if !from.Equal(now.Add(-899*time.Second)) || len(series["accepted"]) != 900 || len(series) != int(seriesCount) {
		t.Fatalf("from %v, %d points of %d series", from, len(series["accepted"]), len(series))
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
	_, total := h.Series("", now)
	if got := value(total["accepted"][899]); got != 20 {
		t.Errorf("the total of a rate is %v, want 20", got)
	}
	later := now.Add(time.Hour)
	if _, series = h.Series("a", later); value(series["accepted"][0]) != -1 {
		t.Error("an hour later the last 15 minutes have values")
	}
}

func TestTheHistoryOfQueuesHasNoTotalAndItsOwnGauges(t *testing.T) {
	t.Parallel()
	h := NewQueues()
	start := time.Unix(1_800_000_000, 0)
	for second := range 60 {
		p := NoPoint()
		p[1], p[Ready] = float32(second%2), float32(second%30)
		h.AddEach(start.Add(time.Duration(second)*time.Second), map[string]Point{"mail": p, "mail/welcome": p})
	}
	_, series := h.Series("mail/welcome", start.Add(59*time.Second))
	if acked, ready := value(series["acked"][899]), value(series["ready"][899]); acked != 1 || ready != 29 || len(series) != len(QueueNames) {
		t.Errorf("a second has %v acked, %v ready, %d series; want 1, 29", acked, ready, len(series))
	}
	if _, total := h.Series("", start.Add(59*time.Second)); value(total["ready"][899]) != -1 {
		t.Error("there is a total, which has jobs twice")
	}
}

func TestHistoryIsBoundedInNamespaces(t *testing.T) {
	t.Parallel()
	h := New()
	points := map[string]Point{}
	for i := range 3 * Kept {
		p := NoPoint()
		p[Accepted] = 1
		points[string(rune('a'+i))] = p
	}
	at := time.Unix(1_800_000_000, 0)
	h.Add(at, points)
	if n := len(h.tracks); n > Kept+1 {
		t.Errorf("%d histories are kept", n)
	}
	if _, total := h.Series("", at); value(total["accepted"][899]) != 3*Kept {
		t.Error("the total lacks namespaces")
	}
	for name := range points {
		if rate := h.Recent(name, at, 5)[Accepted]; rate != 1 {
			t.Errorf("%q: the overview has a rate of %v, want 1", name, rate)
		}
	}
}
