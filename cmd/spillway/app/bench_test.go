package app

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
)

func TestBenchStartsAServiceInItsProcess(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, tt := range []struct {
		args []string
		want map[string]float64
		not  string // measured in this mode
	}{
		{[]string{"ingest"}, map[string]float64{"requests": 100, "acked": 200}, "drain_rate"},
		{[]string{"e2e", "--redis=" + redis.URL(), "--dist=zipf"}, map[string]float64{"acked": 200, "delivered": 200}, "none"},
		{[]string{"drain"}, map[string]float64{"delivered": 200, "buffered": 0}, "p99"},
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
			if _, there := got[tt.not]; there {
				t.Errorf("%s is there, in %s", tt.not, out)
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

func TestBenchSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	_, stderr, code := runCommand(t, nil, "", "bench", "e2e", "--rate=50", "--duration=1200ms")
	if code != exitOK || !regexp.MustCompile(`sending for \d+ of 1 s: `).MatchString(stderr) || !strings.Contains(stderr, " 0 failed, p99 ") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}
