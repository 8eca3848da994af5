package client_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

func TestOnDropHearsOfWhatCloseDrops(t *testing.T) {
	t.Parallel()
	for range 30 {
		var told atomic.Int64
		c, err := client.New("http://127.0.0.1:1", client.Config{
			Transport: clienttest.NewTransport(clienttest.Step{Hang: true}), Batch: 10, Linger: time.Millisecond,
			OnDrop: func(_ client.Reason, n int64) { told.Add(n) },
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			_ = c.Report("kart", []byte("1"))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = c.Close(ctx)
		if n := c.Stats().Dropped[client.Shutdown]; n != 100 || told.Load() != n {
			t.Fatalf("%d dropped, OnDrop heard of %d", n, told.Load())
		}
	}
}
