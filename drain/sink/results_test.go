package sink

import (
	"strings"
	"testing"
)

func TestOnlyACodeOfAReasonIsRepeated(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"too_large": ": too_large", "a-b.c9": ": a-b.c9", "": "", "not a code": "", "Über": "", "line\n": "",
		strings.Repeat("x", 64): ": " + strings.Repeat("x", 64), strings.Repeat("x", 65): "",
	} {
		if got := reasonText(reason); got != want {
			t.Errorf("%q: got %q, want %q", reason, got, want)
		}
	}
}
