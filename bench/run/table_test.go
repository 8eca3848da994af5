package main

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
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

func TestACostRoundAccountsForWhatItProducedClaimedAndCommitted(t *testing.T) {
	t.Parallel()
	var cells []costPhase
	var err error
	redistest.Until(t, time.Minute, "a round ends well: one in which the machine stood still does not", func() bool {
		cells, err = costRound(t.Context(), settings{redisServer: "redis-server", payload: 200}, partitionBatch)
		return err == nil || !errors.Is(err, partition.ErrUnknown)
	})
	if err != nil || len(cells) != len(costPhases) {
		t.Fatalf("got %v, %v; want a cell for each of %v", cells, err, costPhases)
	}
	for i, c := range cells {
		if c.Commands <= 0 || c.CPU <= 0 {
			t.Errorf("%s: got %+v, want some of both", costPhases[i], c)
		}
	}
	if life := cells[3].Commands; life != cells[0].Commands+cells[1].Commands+cells[2].Commands {
		t.Errorf("a whole life is %v commands, which is not the sum of its phases: %+v", life, cells)
	}
}

func TestCostsAreAMarkdownTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := &costReport{Phases: []string{"produce", "claim"}, Rows: []costRow{{2, []costPhase{{3, 5.61}, {6, 12.44}}}}}
	if err := r.sheet(false).print(&out, false); err != nil {
		t.Fatal(err)
	}
	want := "| entries a partition | produce        | claim          |\n| ---                 | ---            | ---            |\n| 2                   | 3.00 · 5.61 µs | 6.00 · 12.4 µs |\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestTargetsCountWhatTheyGot(t *testing.T) {
	t.Parallel()
	hook, err := webhookTarget(t.Context(), settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer hook.close()
	for range 2 {
		resp, err := http.Post(hook.url, "application/x-ndjson", strings.NewReader("1\n2\n3\n"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("got %s", resp.Status)
		}
	}
	if n, err := hook.received(t.Context()); n != 6 || err != nil {
		t.Errorf("the webhook: %d lines, %v; want 6", n, err)
	}
	path := filepath.Join(t.TempDir(), "out.ndjson")
	if err := os.WriteFile(path, []byte("1\n2\nhalf a line"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := countLines(path); n != 2 || err != nil {
		t.Errorf("the file: %d lines, %v; want 2", n, err)
	}
}

// TestMain lets the test binary be one of the sides, as the command is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && sides[os.Args[1]] != nil {
		main()
	}
	os.Exit(m.Run())
}

func TestRedisFieldsAreToldApart(t *testing.T) {
	t.Parallel()
	info := "# Memory\r\nused_memory:123\r\nused_memory_human:0.1K\r\nused_memory_peak:456\r\n"
	if got, err := infoField(info, "used_memory"); err != nil || got != 123 {
		t.Errorf("got %d, %v; want 123", got, err)
	}
	if _, err := infoField(info, "maxmemory"); err == nil {
		t.Error("a missing field: got no error")
	}
}

func TestWrongFlagsAreUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-scenario", "nothing"}, {"-rate", "fast"}, {"-rows", "z"}, {"-rounds", "0"}} {
		if code := command(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}); code != 2 {
			t.Errorf("%v: got exit %d, want 2", args, code)
		}
	}
}

func TestAServerThatDoesNotStartShowsItsLog(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "spillway")
	if err := os.Symlink("/bin/sh", bin); err != nil { // has no script called serve, and says so
		t.Fatal(err)
	}
	var progress bytes.Buffer
	code := command(t.Context(), []string{"-scenario", "throughput", "-bin", bin}, &bytes.Buffer{}, &progress)
	if code != 1 || !strings.Contains(progress.String(), "the process ended; the end of its log:\n") || !strings.Contains(progress.String(), "serve:") {
		t.Errorf("got exit %d and %q, want 1 and the shell's complaint", code, progress.String())
	}
}
