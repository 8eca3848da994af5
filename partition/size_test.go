package partition_test

import (
	"math"
	"testing"

	"github.com/spillway-io/spillway/partition"
)

func TestSizeReadsNumbersWithUnits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]partition.Size{
		"0": 0, "7": 7, "7B": 7, "1KB": 1000, "1KiB": 1024, "64MiB": 64 << 20, "100MB": 100_000_000, "2GiB": 2 << 30, "3gb": 3_000_000_000,
		"9223372036854775807": math.MaxInt64,
	} {
		var got partition.Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
		var again partition.Size
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("%s: its own spelling %s reads as %d, %v", text, got, again, err)
		}
	}
}

func TestSizeRejectsUnknownUnitsAndNumbersOutOfRange(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "B", "5M", "5k", "-1", "+1", "-1MB", "1.5GB", "1 MB", "MB", "1TB",
		"9223372036854775808", "9223372036854775807KB", "10000000000GB", "9999999999GiB",
	} {
		var s partition.Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %d, want an error", text, s)
		}
	}
}
