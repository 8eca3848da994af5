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

func TestReportAndBenchRejectUnusableSettings(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"report --rate=NaN":               "rate: NaN is not usable: want 0.001 to 1000000000",
		"report --rate=1e-300":            "rate: 1e-300 is not usable: want 0.001 to 1000000000",
		"report --rate=-1":                "rate: -1 is not usable: want 0.001 to 1000000000",
		"report --replay-speed=+Inf":      "replay_speed: +Inf is not usable: want 0.001 to 1000000000",
		"report --timeout=1ns":            "timeout: 1ns is not usable: want 10ms to 1h",
		"report --timeout=0s":             "timeout: 0s is not usable: want 10ms to 1h",
		"bench ingest --rate=NaN":         "rate: NaN is not usable: want 0 to 10000000",
		"bench ingest --rate=-1":          "rate: -1 is not usable: want 0 to 10000000",
		"bench drain --rate=1e300":        "rate: 1e+300 is not usable: want 0 to 10000000",
		"bench ingest --duration=-1s":     "duration: -1s is not usable: want 1ms to 24h",
		"bench ingest --timeout=1ns":      "timeout: 1ns is not usable: want 10ms to 1h",
		"bench ingest --partitions=0":     "partitions: 0 is not usable: want 1 to 10000000",
		"bench ingest --batch=1001":       "batch: 1001 is not usable: want 1 to 1000",
		"bench ingest --connections=0":    "connections: 0 is not usable: want 1 to 65535",
		"bench ingest --size=1":           "size: 1 is not usable: want",
		"bench ingest --size=99999999999": "size: 99999999999 is not usable: want",
	} {
		if _, stderr, code := runCommand(t, nil, "", strings.Fields(args)...); code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d and %q, want %q", args, code, stderr, want)
		}
	}
}
