package main

import (
	"math"
	"strconv"
	"testing"
)

func TestSizeReadsUnitsAndRefusesUnclearOnes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{
		"0": 0, "7": 7, "7B": 7, "1KB": 1000, "1KiB": 1024, "64MiB": 64 << 20, "100MB": 100_000_000, "2GiB": 2 << 30, "3gb": 3_000_000_000,
	} {
		var got Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
		var again Size
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("%s: its own spelling %s reads as %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "B", "5M", "5k", "-1", "-1MB", "1.5GB", "1 MB", "9999999999GiB", "MB", strconv.Itoa(math.MaxInt) + "KB"} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %d, want an error", text, s)
		}
	}
}
