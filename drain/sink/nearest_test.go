package sink_test

import (
	"strings"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
)

func TestNearestFindsWhatAMisspeltNameMeans(t *testing.T) {
	t.Parallel()
	known := []string{"max_size", "rotate_every", "compress", "keep", "capacity", "max_age", "gzip"}
	for given, want := range map[string]string{
		"maxsize": "max_size", "max-size": "max_size", "MAX_SIZE": "max_size", "max_sise": "max_size",
		"compression": "compress", "kepe": "keep", "capcity": "capacity", "max_aeg": "max_age", "gzp": "gzip",
		"": "", "x": "", "ttl": "", "zone": "", "kart": "", "parallelism": "", strings.Repeat("max_size", 1000): "",
	} {
		if got := sink.Nearest(given, known); got != want {
			t.Errorf("%.20s: got %q, want %q", given, got, want)
		}
	}
}
