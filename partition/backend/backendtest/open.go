// Package backendtest opens a backend for the tests of what is built on it.
package backendtest

import (
	"context"
	"errors"
	"net"
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

// Patient has a backend that nothing has used yet wait a minute for a connection and for answers, not 1 s and 2 s: a
// busy machine, or one that stands still for a while, may take longer than a service waits, and a call whose answer is
// late has an unknown outcome.
func Patient(b *backend.Backend) {
	for _, c := range []redis.UniversalClient{b.In, b.Out, b.Background} {
		switch c := c.(type) {
		case *redis.Client:
			o := c.Options()
			o.ReadTimeout, o.WriteTimeout, o.Dialer = time.Minute, time.Minute, patient(o.Dialer)
		case *redis.ClusterClient:
			o := c.Options()
			o.ReadTimeout, o.WriteTimeout, o.Dialer = time.Minute, time.Minute, patient(o.Dialer)
		}
	}
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// patient dials again while a connection was only late.
func patient(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		end := time.Now().Add(time.Minute)
		for {
			c, err := dial(context.WithoutCancel(ctx), network, addr)
			late := net.Error(nil)
			if !errors.As(err, &late) || !late.Timeout() || time.Now().After(end) {
				return c, err
			}
		}
	}
}
