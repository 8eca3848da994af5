package app

import (
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestFallbacksThatCannotWorkSayWhere(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"fallback: [\"a b\"]\n":                      "spillway.yaml:1: fallback: not a list of texts without spaces",
		"fallback: [{a: b}]\n":                       "spillway.yaml:1: fallback: not a list of texts without spaces",
		"sink: file:///a\nfallback: [file:///a]\n":   "spillway.yaml:2: namespaces.default.fallback: /a is not usable: want another file, because namespace default writes to this one",
		"fallback: [\"null:\", \"pigeon://u:pw@h\"]": "spillway.yaml:1: namespace default: unknown sink scheme \"pigeon\"",
		"fallback: [\"https://u:pw@h:x/\"]":          "spillway.yaml:1: namespace default: sink URL is malformed: invalid port",
		"fallback: [\"namespaces://default\"]\n":     "no way back to default",
	} {
		c, err := loadConfig(t, nil, nil, file)
		if err == nil {
			_, err = NewApp(c, sinkRegistry(), zap.NewNop())
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw") {
			t.Errorf("%s: got %v, want %s", file, err, want)
		}
	}
}

func TestConfigPrintShowsFallbacksWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	out, _, code := runCommand(t, nil, "", "config", "print", "--fallback=https://u:pw@h/secret?k=pw file:///a")
	if code != exitOK || !strings.Contains(out, "\nfallback: https://…@h/…?… file:///a # --fallback\n") || strings.Contains(out, "pw") {
		t.Errorf("got %d %s", code, out)
	}
}
