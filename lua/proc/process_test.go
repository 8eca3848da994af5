package proc

import (
	"strings"
	"testing"
	"time"
)

func TestCPUIsReadPastANameWithSpacesAndBrackets(t *testing.T) {
	t.Parallel()
	stat := "42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 150 75 0 0 20 0 9 0 123 456 789"
	if got, err := parseCPU([]byte(stat)); err != nil || got != 2250*time.Millisecond {
		t.Errorf("got %v, %v; want 150 + 75 ticks, 2.25s", got, err)
	}
	for _, broken := range []string{"", "42 (a) S 1 2", strings.Replace(stat, "150", "x", 1)} {
		if _, err := parseCPU([]byte(broken)); err == nil {
			t.Errorf("%q: got no error", broken)
		}
	}
}

func TestMemoryIsReadInBytes(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]int64{"VmHWM": 2 << 20, "VmRSS": 1 << 20} {
		if got, err := parseStatus([]byte("Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t 1024 kB\n"), field); err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", field, got, err, want)
		}
	}
	for _, broken := range []string{"", "VmHWM: much kB\n"} {
		if _, err := parseStatus([]byte(broken), "VmHWM"); err == nil {
			t.Errorf("%q: got no error", broken)
		}
	}
}
