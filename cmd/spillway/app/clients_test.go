package app

import (
	"strings"
	"testing"
)

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
