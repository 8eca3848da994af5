package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// slowScript is when calls of others time out. How long a script takes says little on a busy
	// machine, which may leave Redis without a processor for half a second.
	slowScript = 2 * time.Second
	bigEntry   = 1<<20 - 100
)

// sizes are entries far larger than the usual.
var sizes = []situation{
	{"128 entries of 1 MiB do not hold up Redis, and all are delivered", bigBesideSmall},
	{"the rest of a batch that bytes cut does not linger again", cutByBytes},
}

// fillBig posts n entries of 1 MiB to one partition.
func (v *server) fillBig(ctx context.Context, n int) error {
	for i := range n {
		status, answer, err := v.post(ctx, "/v1/default/big", "application/octet-stream", fmt.Sprintf("%08d", i)+strings.Repeat("x", bigEntry))
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("big entry %d: %d %s (%w)", i, status, answer, err)
		}
	}
	return nil
}

// bigBesideSmall: a partition of big entries costs its neighbours nothing but
// the bytes.
func bigBesideSmall(ctx context.Context, s *stage) error {
	if err := s.client.ConfigSet(ctx, "slowlog-log-slower-than", fmt.Sprint(slowScript.Microseconds())).Err(); err != nil {
		return err
	}
	in, err := s.serve(ctx, "--role=ingest", "--max-entry=1MiB", "--sink=null:")
	if err != nil {
		return err
	}
	if err := in.fillBig(ctx, 128); err != nil {
		return err
	}
	out, err := s.serve(ctx, "--role=drain", "--max-entry=1MiB", "--sink=null:")
	if err != nil {
		return err
	}
	// Neighbours report all the while.
	reporting, stop := context.WithCancel(ctx)
	defer stop()
	var neighbours sync.WaitGroup
	served, failed := make([]int, 4), make([]error, 4)
	for i := range served {
		neighbours.Go(func() {
			for reporting.Err() == nil && failed[i] == nil {
				if failed[i] = in.take(ctx, fmt.Sprint("small-", i), `{"n":1}`); failed[i] == nil {
					served[i]++
				}
			}
		})
	}
	err = until(ctx, 30*time.Second, func() error {
		a, err := out.account(ctx, false)
		if err == nil && a.Ledger.Buffered > 1000 {
			err = fmt.Errorf("after 30 s: %+v", a.Ledger)
		}
		if err == nil {
			var depth int64
			if depth, err = s.client.LLen(ctx, "sw:{default.0}:q:big").Result(); err == nil && depth > 0 {
				err = fmt.Errorf("%d of 128 big entries are not delivered after 30 s", depth)
			}
		}
		return err
	})
	stop()
	neighbours.Wait()
	if err != nil {
		return err
	}
	for i, err := range failed {
		if err != nil {
			return fmt.Errorf("neighbour %d after %d requests: %w", i, served[i], err)
		}
	}
	l, err := out.settled(ctx, 15*time.Second)
	if err != nil {
		return err
	}
	if l.Delivered != l.Accepted {
		return fmt.Errorf("not all were delivered: %+v", l)
	}
	slow, err := s.client.SlowLogGet(ctx, 10).Result()
	if err != nil {
		return err
	}
	for _, e := range slow {
		if strings.EqualFold(e.Args[0], "evalsha") {
			return fmt.Errorf("a script held Redis for %v", e.Duration)
		}
	}
	return nil
}

// cutByBytes: a lease of 4 MiB takes a few of 40; the others are as old.
func cutByBytes(ctx context.Context, s *stage) error {
	in, err := s.serve(ctx, "--role=ingest", "--max-entry=1MiB", "--sink=null:", "--linger=2s", "--max-age=10s")
	if err != nil {
		return err
	}
	if err := in.fillBig(ctx, 40); err != nil {
		return err
	}
	out, err := s.serve(ctx, "--role=drain", "--max-entry=1MiB", "--sink=null:", "--linger=2s", "--max-age=10s")
	if err != nil {
		return err
	}
	l, err := out.settled(ctx, 40*time.Second)
	if err == nil && l.Delivered != 40 {
		err = fmt.Errorf("under an idle sink: %+v", l)
	}
	return err
}
