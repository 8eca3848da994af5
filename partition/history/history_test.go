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

func TestHistoryKeepsSecondsAndMinutes(t *testing.T) {
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
	from, step, series := h.Series("a", now, false)
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
	_, _, total := h.Series("", now, false)
	if got := value(total["accepted"][899]); got != 20 {
		t.Errorf("the total of a rate is %v, want 20", got)
	}
	from, step, series = h.Series("a", now, true)
	if step != time.Minute || !from.Equal(start.Add(-1438*time.Minute)) || len(series["accepted"]) != 1440 {
		t.Fatalf("from %v by %v, %d points", from, step, len(series["accepted"]))
	}
	if rate, depth := value(series["accepted"][1438]), value(series["buffered"][1438]); rate != 10 || depth != 29 {
		t.Errorf("the first minute: got a rate of %v and a depth of %v, want the mean 10 and the highest 29", rate, depth)
	}
	later := now.Add(time.Hour)
	if _, _, series = h.Series("a", later, false); value(series["accepted"][0]) != -1 {
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
	_, _, series := h.Series("mail/welcome", start.Add(59*time.Second), true)
	if acked, ready := value(series["acked"][1439]), value(series["ready"][1439]); acked != 0.5 || ready != 29 || len(series) != len(QueueNames) {
		t.Errorf("a minute has %v acked a second, %v ready, %d series; want the mean 0.5, the highest 29", acked, ready, len(series))
	}
	if _, _, total := h.Series("", start.Add(59*time.Second), true); value(total["ready"][1439]) != -1 {
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
	if _, _, total := h.Series("", at, false); value(total["accepted"][899]) != 3*Kept {
		t.Error("the total lacks namespaces")
	}
	for name := range points {
		if rate := h.Recent(name, at, 5)[Accepted]; rate != 1 {
			t.Errorf("%q: the overview has a rate of %v, want 1", name, rate)
		}
	}
}
