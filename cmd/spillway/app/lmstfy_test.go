package app

import (
	"strings"
	"testing"
)

func TestLmstfyNeedsItsPathsAndItsAPI(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--lmstfy-metrics":                  "lmstfy_metrics",
		"--lmstfy --segment-prefix=/api":    "segment_prefix",
		"--lmstfy --segment-prefix=/api/x":  "segment_prefix",
		"--lmstfy --segment-prefix=/apix":   "",
		"--segment-prefix=/api":             "",
		"--lmstfy --lmstfy-metrics":         "",
		"--lmstfy --segment-prefix=/events": "",
	} {
		_, stderr, code := runCommand(t, nil, "", append([]string{"config", "check"}, strings.Fields(args)...)...)
		if (code == 0) != (want == "") || !strings.Contains(stderr, want) {
			t.Errorf("%s: got %d %s", args, code, stderr)
		}
	}
}
