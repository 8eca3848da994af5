package app

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition/backend"
)

const canary = "correct-horse-battery"

// FuzzURLs checks that neither the errors nor the redacted form of a sink's or a
// store's URL show its password.
func FuzzURLs(f *testing.F) {
	for _, form := range []string{
		"https://u:%s@h/in", "http://h/%s?k=%s", "file:///x?max_size=%s", "file:///x?%s", "stdout:%s", "null:%s", "redis://:%s@h", "redis-sentinel://u:%s@a,b/m", "%s", "http:u:%s@h",
	} {
		f.Add(form)
	}
	for _, seed := range urlSeeds {
		f.Add(seed)
	}
	known := sinkRegistry()
	f.Fuzz(func(t *testing.T, form string) {
		// A slash too few or too many makes a user and password a path.
		for _, wrong := range []string{"https:/", "https:///", "https:", "redis:/", "redis:"} {
			raw := wrong + "u:" + canary + "@h/" + strings.ReplaceAll(form, "%s", "x")
			texts := []string{sink.Redact(raw), config.RedactStore(raw)}
			if s, err := known.New(raw); err == nil {
				_ = s.Close(context.Background())
			} else {
				texts = append(texts, err.Error())
			}
			if _, err := backend.Open(backend.Config{URL: raw}, prometheus.NewRegistry(), zap.NewNop()); err != nil {
				texts = append(texts, err.Error())
			}
			if shown := strings.Join(texts, "\n"); strings.Contains(shown, canary) && !strings.Contains(form, canary) {
				t.Fatalf("%q is shown as %q", raw, shown)
			}
		}
		for _, raw := range []string{strings.ReplaceAll(form, "%s", canary), "https://u:" + canary + "@" + form, "redis://u:" + canary + "@" + form} {
			if s, err := known.New(raw); err == nil {
				_ = s.Close(context.Background())
			} else if strings.HasPrefix(raw, "https://u:"+canary) && strings.Contains(err.Error(), canary) {
				t.Fatalf("%q is rejected with %v", raw, err)
			}
			if strings.HasPrefix(raw, "redis://u:"+canary) && strings.Contains(config.RedactStore(raw), canary) && !strings.Contains(form, canary) {
				t.Fatalf("%q is shown as %q", raw, config.RedactStore(raw))
			}
		}
	})
}
