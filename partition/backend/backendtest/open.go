// Package backendtest opens a backend for the tests of what is built on it.
package backendtest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/backend"
)

// Patience is that of a test, a minute for an answer: a busy machine, or one that stands still for a while, may take longer
// than a service waits, and a call whose answer is late has an unknown outcome.
const Patience = 30

// Open opens a backend that is patient and closed when the test ends.
func Open(tb testing.TB, cfg backend.Config) *backend.Backend {
	tb.Helper()
	cfg.Patience = Patience
	b, err := backend.Open(cfg, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = b.Close() })
	return b
}
