// Package backendtest opens a backend for the tests of what is built on it.
package backendtest

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/backend"
)

// Open opens a backend that is patient and closed when the test ends.
func Open(tb testing.TB, cfg backend.Config) *backend.Backend {
	tb.Helper()
	b, err := backend.Open(cfg, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = b.Close() })
	Patient(b)
	return b
}

// Patient has a backend that nothing has used yet wait for answers a minute, not 2 s: a busy machine, or
// one that stands still for a while, may take longer than a service waits, and a call whose
// answer is late has an unknown outcome.
func Patient(b *backend.Backend) {
	for _, c := range []redis.UniversalClient{b.In, b.Out, b.Background} {
		switch c := c.(type) {
		case *redis.Client:
			c.Options().ReadTimeout, c.Options().WriteTimeout = time.Minute, time.Minute
		case *redis.ClusterClient:
			c.Options().ReadTimeout, c.Options().WriteTimeout = time.Minute, time.Minute
		}
	}
}
