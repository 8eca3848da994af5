package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

func TestAssertionsCompareNumbersAndDurations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list string
		got  float64
		hold bool
	}{
		{"p99<5ms", 0.0049, true}, {"p99<5ms", 0.005, false}, {"p99<=5ms", 0.005, true}, {" p99.9 > 1s ", 2, true},
		{"residual=0", 0, true}, {"residual==0", 1, false}, {"rate>=1e4", 9999, false}, {"errors!=0", 1, true}, {"max<0", 0, false},
	} {
		list, err := parseAsserts(tt.list)
		if err != nil || len(list) != 1 {
			t.Errorf("%s: got %v, %v", tt.list, list, err)
			continue
		}
		if got := list[0].holds(tt.got); got != tt.hold {
			t.Errorf("%s with %v: got %v", tt.list, tt.got, got)
		}
	}
	for _, broken := range []string{"p99", "p99<", "p99<5", "p98<5ms", "residual=0ms", "p99=<5ms", "p99<5ms,x", "<5ms"} {
		if list, err := parseAsserts(broken); err == nil {
			t.Errorf("%q: got %v, want an error", broken, list)
		}
	}
	if list, err := parseAsserts("p99<5ms, residual=0,"); err != nil || len(list) != 2 {
		t.Errorf("a list: got %v, %v; want two", list, err)
	}
}

func TestBenchStartsAServiceInItsProcess(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, tt := range []struct {
		args []string
		want map[string]float64
	}{
		{[]string{"ingest"}, map[string]float64{"requests": 100, "acked": 200}},
		{[]string{"e2e", "--redis=" + redis.URL(), "--dist=zipf"}, map[string]float64{"acked": 200, "delivered": 200}},
		{[]string{"drain"}, map[string]float64{"delivered": 200, "buffered": 0}},
	} {
		t.Run(tt.args[0], func(t *testing.T) {
			t.Parallel()
			args := append([]string{"bench", "-o", "json", "--rate=200", "--duration=500ms", "--batch=2", "--partitions=5", "--assert=residual=0,lost=0"}, tt.args...)
			out, stderr, code := runCommand(t, nil, "", args...)
			var got map[string]any
			if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
				t.Fatalf("exit %d, %v: %s%s", code, err, out, stderr)
			}
			for key, want := range tt.want {
				if got[key] != want {
					t.Errorf("%s: got %v, want %v", key, got[key], want)
				}
			}
			c := benchCmd{Mode: tt.args[0]}
			for _, key := range benchFigures {
				if _, ok := got[key]; ok != slices.Contains(c.measured(), key) {
					t.Errorf("%s is there: %t, in %s", key, ok, out)
				}
			}
			if !strings.Contains(stderr, "in this process") {
				t.Errorf("stderr does not say where the service runs: %s", stderr)
			}
		})
	}
}

func TestBenchFailsWhenAnAssertionFails(t *testing.T) {
	t.Parallel()
	out, stderr, code := runCommand(t, nil, "", "bench", "ingest", "--rate=50", "--duration=100ms", "--assert=acked>1000,errors=0")
	if code != exitFailure || !strings.Contains(stderr, "assert acked>1000: got 5 entries") || !strings.Contains(out, "p99.9") {
		t.Errorf("exit %d, %s\n%s", code, stderr, out)
	}
}

func TestBenchPrintsUnitsAndRejectionsByCode(t *testing.T) {
	t.Parallel()
	c := benchCmd{Mode: "ingest", Output: "text"}
	figures := map[string]float64{"requests": 12345, "acked": 12300, "errors": 45, "unknown": 2, "rejected": 43, "rate": 1234.5678, "p50": 0.000412, "p99": 0.0123456, "p99.9": 1.5, "max": 61}
	var b strings.Builder
	if err := c.print(&b, figures, map[string]int64{"rate_limited": 40, "overdue": 3}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "bench.golden")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || b.String() != string(want) {
		t.Errorf("%v, got\n%swant\n%s", err, b.String(), want)
	}
}

func TestTheRateOfADrainIsWithoutItsTail(t *testing.T) {
	t.Parallel()
	began := time.Now()
	d := &drainCurve{}
	d.start(began, partition.Ledger{Delivered: 1000})
	// 1,000 a second for 9 s, then 1,000 more after a second's wait.
	for i := range 10 {
		d.add(began.Add(time.Duration(i)*time.Second), partition.Ledger{Delivered: 1000 + int64(i)*1000})
	}
	d.add(began.Add(11*time.Second), partition.Ledger{Delivered: 11_000})
	d.add(began.Add(12*time.Second), partition.Ledger{Delivered: 11_000})
	if got := d.rate(); got != 1000 {
		t.Errorf("got %v, want 1000", got)
	}
	if got := new(drainCurve).rate(); got != 0 {
		t.Errorf("nothing delivered: got %v", got)
	}
	// A burst of less than half of the entries is no rate.
	d = &drainCurve{began: began}
	d.add(began.Add(time.Millisecond), partition.Ledger{Delivered: 40})
	d.add(began.Add(time.Second), partition.Ledger{Delivered: 100})
	if got := d.rate(); got != 100 {
		t.Errorf("got %v, want 100", got)
	}
}

func TestBenchSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	_, stderr, code := runCommand(t, nil, "", "bench", "e2e", "--rate=50", "--duration=1200ms")
	if code != exitOK || !regexp.MustCompile(`sending for \d+ of 1 s: `).MatchString(stderr) || !strings.Contains(stderr, " 0 failed, p99 ") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}
