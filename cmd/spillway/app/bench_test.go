package app

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
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
			args := append([]string{"bench", "-o", "json", "--rate=200", "--duration=500ms", "--batch=2", "--partitions=5", "--assert=errors=0,residual=0,lost=0"}, tt.args...)
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
			for _, key := range benchFigures {
				if _, ok := got[key]; !ok {
					t.Errorf("%s is missing in %s", key, out)
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
	if code != exitFailure || !strings.Contains(stderr, "assert acked>1000: got 5") || !strings.Contains(out, "p99.9") {
		t.Errorf("exit %d, %s\n%s", code, stderr, out)
	}
}
