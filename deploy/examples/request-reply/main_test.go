package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

func TestARequestGetsItsReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := clienttest.NewQueues()
		cfg := func() *spillway.QueuesConfig { return &spillway.QueuesConfig{Transport: service} }
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		var worked, replied strings.Builder
		go func() { ended <- run(ctx, []string{"worker"}, cfg(), &worked) }()
		if err := run(ctx, []string{"request", "hello"}, cfg(), &replied); err != nil || replied.String() != "HELLO\n" {
			t.Errorf("got %q, %v", replied.String(), err)
		}
		stop()
		if err := <-ended; err != nil || !strings.HasPrefix(worked.String(), "attempt 1 of ") {
			t.Errorf("got %q, %v", worked.String(), err)
		}
		if err := run(t.Context(), []string{"-wait", "5s", "request", "hello"}, cfg(), &replied); !errors.Is(err, errNoReply) {
			t.Errorf("got %v without a worker", err)
		}
		if err := run(t.Context(), nil, cfg(), &replied); err == nil {
			t.Error("a command without a word is taken")
		}
	})
}
