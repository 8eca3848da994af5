package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestARowIsTheMedianOfItsRounds(t *testing.T) {
	t.Parallel()
	ratio := &row{Key: "a", Measure: "ratio", Goal: 0.5}
	for _, ours := range []float64{90, 30, 60} {
		ratio.add(ours, 100, &costs{Server: ours, Residual: int64(ours) - 60})
	}
	if got := median(ratio.Values); got != 0.6 || !ratio.met() {
		t.Errorf("got %v, met %v; want 0.6, met", got, ratio.met())
	}
	ratio.AtMost = true
	if ratio.met() {
		t.Error("0.6 meets a ceiling of 0.5")
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Errorf("got %v of four, want the mean of the middle two", got)
	}
	if got := strings.Join(ratio.costs(), " "); got != "60.0 0 0 0 0 0 30" {
		t.Errorf("got %q, want medians, and the worst residual", got)
	}
	absolute := &row{Goal: 10}
	absolute.add(11, 0, nil)
	if len(absolute.Other) != 0 || absolute.Values[0] != 11 {
		t.Errorf("got %+v, want a figure of ours alone", absolute)
	}
}

func TestTheTableShowsWhatWasMissedAndWhatIsWrong(t *testing.T) {
	t.Parallel()
	good, bad := &row{Key: "a", Measure: "good", Goal: 1, Note: "why"}, &row{Key: "b", Measure: "bad", Goal: 1, Unit: "ms", AtMost: true}
	good.add(2, 1, nil)
	bad.add(3, 0, nil)
	table := &table{Rows: []*row{good, bad, {Key: "c", Measure: "not reached"}}, Faults: []string{"residual 3"}}
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		if err := table.sheet(colour).print(&out, colour); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		for _, want := range []string{"≥ 1.00", ", met ", "≤ 1.00 ms", "a: why.", "the account: residual 3"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		if strings.Contains(text, "not reached") || strings.Contains(text, "\x1b[31mmissed") != colour {
			t.Errorf("colour %v: got\n%s", colour, text)
		}
	}
}

func TestCostsAreSharedOutAmongTheEntries(t *testing.T) {
	t.Parallel()
	before := usage{serverCPU: time.Second, redisCPU: time.Second, batches: 5, batched: 100, commands: 10, scripts: 4}
	now := usage{serverCPU: 3 * time.Second, redisCPU: 2 * time.Second, loaderCPU: time.Second, batches: 7, batched: 228, commands: 30, scripts: 6}
	got := now.since(before, 1_000_000)
	want := costs{Server: 2, Redis: 1, Loader: 1, Fill: 0.5, Calls: 20e-6, Scripts: 2e-6}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRowsAreAskedForByNameOrByLetters(t *testing.T) {
	t.Parallel()
	for _, g := range groups {
		for _, r := range g.rows() {
			if some, err := chosen(r.Key); err != nil || !slices.ContainsFunc(some, func(s group) bool { return s.has(r.Key) }) {
				t.Errorf("row %s: got %d groups, %v", r.Key, len(some), err)
			}
		}
	}
	for list, want := range map[string]int{"": len(groups), "bcd": 1, "c,f": 2, "fgb": 3, "f,gb": 3} {
		if some, err := chosen(list); err != nil || len(some) != want {
			t.Errorf("%q: got %d groups, %v; want %d", list, len(some), err, want)
		}
	}
	for _, list := range []string{"z", "a,", ",", "bz", "a sparse", "sparce"} {
		if some, err := chosen(list); err == nil {
			t.Errorf("%q: got %d groups and no error", list, len(some))
		}
	}
}
