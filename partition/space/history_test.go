package space

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
)

// history opens that of the namespace mail, as one process does.
func history(t *testing.T, url string) *History {
	t.Helper()
	b := backendtest.Open(t, backend.Config{URL: url})
	h := NewHome("sw", "mail", 3, nil)
	New(Config{Kind: &Kind{}, Prefix: "sw", Log: zap.NewNop()}, b).Adopt(h)
	return h.History
}

func TestAHistoryIsTheSameInEveryProcessAndThereAfterARestart(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func() string{
		"redis":   func() string { return redistest.Start(t).URL() },
		"cluster": func() string { return redistest.StartMasters(t, 2).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			at := url()
			one, other := history(t, at), history(t, at)
			want := []Record{{100, []int64{7, 0}}, {101, []int64{9, -1}}, {105, []int64{9, 3}}, {165, []int64{9, 3}}}
			for _, r := range []Record{want[0], {100, []int64{8, 0}}, want[1], {102, want[1].Figures}, want[2], {164, want[2].Figures}, want[3]} {
				for _, h := range []*History{one, other} { // both take themselves for the first
					if err := h.Record(t.Context(), r); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, h := range []*History{one, other, history(t, at)} {
				if got, err := h.Read(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("got %v, %v, want %v", got, err, want)
				}
			}
		})
	}
}

func TestAHistoryIsADayLongAndEndsADayAfterItsNamespace(t *testing.T) {
	t.Parallel()
	server := redistest.StartWithClock(t)
	h, c := history(t, server.URL()), server.Client()
	for minute := range int64(HistoryKept + 10) {
		if err := h.Record(t.Context(), Record{minute, []int64{minute}}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := h.Read(t.Context())
	if err != nil || len(all) != HistoryKept || all[0].Minute != 10 {
		t.Errorf("%d are left, %v", len(all), err)
	}
	if err := h.Record(t.Context(), Record{all[len(all)-1].Minute - 1, []int64{1}}); err != nil { // by a clock that is behind
		t.Fatal(err)
	}
	if last := c.LIndex(t.Context(), h.key, -1).Val(); !strings.HasPrefix(last, fmt.Sprint(all[len(all)-1].Minute)) {
		t.Errorf("a minute that is over became the last: %s", last)
	}
	c.HSet(t.Context(), h.ledger, "closed", time.Now().Add(24*time.Hour).UnixMilli())
	if err := h.Record(t.Context(), Record{5000, []int64{1}}); err != nil {
		t.Fatal(err)
	}
	if n := c.LLen(t.Context(), h.key).Val(); n != HistoryKept {
		t.Errorf("%d records after one of a namespace that is being deleted", n)
	}
	server.Advance(historyTTL + time.Minute)
	if keys := c.Keys(t.Context(), "*").Val(); fmt.Sprint(keys) != "["+h.ledger+"]" {
		t.Errorf("a day later there are %v", keys)
	}
}
