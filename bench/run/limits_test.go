package main

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/lua/redistest"
)

func TestALeastRoundMeasuresBothSides(t *testing.T) {
	t.Parallel()
	least, bare, err := leastRound(t.Context(), settings{redisServer: "redis-server", payload: 200}, 2)
	if err != nil || least <= 0 || bare <= 0 {
		t.Fatalf("got %v and %v µs, %v; want some of both", least, bare, err)
	}
}

func TestTheParkingSideStoresEachRequestBeforeItAnswers(t *testing.T) {
	t.Parallel()
	r, err := newRig(t.Context(), settings{redisServer: "redis-server"}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	ctx, cancel := context.WithCancel(context.Background())
	listen := redistest.FreeAddr(t)
	ended := make(chan error, 1)
	go func() {
		ended <- parking(ctx, []string{"-listen", listen, "-redis", r.client.Options().Addr}, io.Discard)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	for {
		if _, err := bench.Get(t.Context(), "http://"+listen); err == nil || t.Context().Err() != nil {
			break
		}
	}
	res, err := bench.Run(t.Context(), bench.Load{URL: "http://" + listen, Namespace: "default", Requests: 200, Duration: time.Minute,
		Partitions: 1, Entries: 1, PayloadBytes: 100, Connections: 4, Timeout: requestTimeout})
	stored, _ := r.client.LLen(t.Context(), "/v1/default/bench-0").Result()
	if err != nil || res.Acked != 200 || stored != 200 {
		t.Errorf("got %d acknowledged and %d stored, %v; want 200 of both", res.Acked, stored, err)
	}
}

func TestHTTPLeavesLessThanTheRawScriptsReach(t *testing.T) {
	t.Parallel()
	least, scripts, err := singleJobsRound(t.Context(), settings{redisServer: "redis-server", payload: 200, partitions: 4, segment: 100 * time.Millisecond})
	if err != nil || least <= 0 || least >= scripts {
		t.Fatalf("got %v of %v jobs/s, %v; want some, and less", least, scripts, err)
	}
}
