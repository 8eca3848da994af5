package app

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestTheLogHoldsNoCharacterThatDrivesATerminal(t *testing.T) {
	t.Parallel()
	const said = "a\u009b31m b\u202ec \u2066d\u200f\x7f e\U000e0001 größe 東京 \x1b[2J\nz"
	for _, format := range []string{"json", "console"} {
		var out bytes.Buffer
		newLogger(&out, "info", format).Info("line", zap.String("said", said))
		for _, r := range "\u009b\u202e\u2066\u200f\x7f\U000e0001\x1b" {
			if strings.ContainsRune(out.String(), r) {
				t.Errorf("%s: %q holds %U", format, out.String(), r)
			}
		}
		if !strings.Contains(out.String(), "größe 東京") || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: %q", format, out.String())
		}
		object := out.String()[strings.IndexByte(out.String(), '{'):]
		var line struct{ Said string }
		if err := json.Unmarshal([]byte(object), &line); err != nil || line.Said != said {
			t.Errorf("%s: reads as %q, %v", format, line.Said, err)
		}
	}
}
