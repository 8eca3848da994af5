package partition

import (
	"strings"
	"testing"
	"time"
)

func TestRates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Rate{"": {}, "1/s": {1, time.Second}, "1000/min": {1000, time.Minute}, "1000000000/h": {MaxRate, time.Hour}} {
		var got Rate
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want || got.String() != text {
			t.Errorf("%q: got %+v %q, %v", text, got, got.String(), err)
		}
	}
	for _, text := range []string{"x", "1", "0/s", "-1/s", "1/d", "1.5/s", "1000000001/h", "1/s ", "/s", "99999999999999999999/s"} {
		if err := new(Rate).UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "write one such as") {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// Whoever can write to Redis chooses these texts.
