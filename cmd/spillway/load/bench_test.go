package load

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden file")

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

func TestBenchPrintsUnitsAndRejectionsByCode(t *testing.T) {
	t.Parallel()
	c := Bench{Mode: "ingest", Output: "text"}
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
