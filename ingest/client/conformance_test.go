package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

// sdk is the Client as the suite drives it.
type sdk struct{ *client.Client }

func (s sdk) Report(partition, payload string) { _ = s.Client.Report(partition, []byte(payload)) }

func (s sdk) ReportAt(partition, payload string, at time.Time) {
	_ = s.Client.ReportAt(partition, []byte(payload), at, "")
}

func (s sdk) Flush(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.Client.Flush(ctx)
}

func (s sdk) Close(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.Client.Close(ctx)
}

func (s sdk) Counts() clienttest.Counts {
	now := s.Stats()
	c := clienttest.Counts{Reported: now.Reported, Acked: now.Acked, Pending: now.Pending, Dropped: map[string]int64{}}
	for why, n := range now.Dropped {
		c.Dropped[string(why)] = n
	}
	return c
}

func TestConformance(t *testing.T) {
	t.Parallel()
	clienttest.Run(t, func(t testing.TB, url string, o clienttest.Options) clienttest.SDK {
		c, err := client.New(url, client.Config{
			Token: o.Token, Batch: o.Batch, Queue: o.Queue, Linger: o.Linger, MaxAge: o.MaxAge, Timeout: o.Timeout,
			Attempts: o.Attempts, BackoffBase: o.BackoffBase, BackoffMax: o.BackoffMax, BreakAfter: o.BreakAfter, ProbeEvery: o.ProbeEvery,
		}.WithKeyWindow(o.KeyWindow))
		if err != nil {
			t.Fatal(err)
		}
		return sdk{c}
	})
}
