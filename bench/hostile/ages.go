package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spillway-io/spillway/bench/rig"
)

// ages are entries that must not grow too old while their sink is well.
var ages = []situation{
	{"the rest of a batch that was rejected for a while does not linger again", restAfterOutage},
	{"after one slow Write a fast sink gets later entries", paceDecays},
	{"new healthy partitions beside new failing ones are delivered", churn},
	{"20,000 stale partitions that nobody drains end within a minute", staleEnd},
}

// restAfterOutage: 178 entries, a full batch and a rest; the sink is away for 6 s
// of their 10.
func restAfterOutage(ctx context.Context, s *stage) error {
	hook, err := s.receive(func(d delivery) reply {
		if d.number == 0 {
			return reply{status: http.StatusServiceUnavailable, headers: map[string]string{"Retry-After": "6"}}
		}
		return reply{status: http.StatusOK}
	})
	if err != nil {
		return err
	}
	v, err := s.serve(ctx, "--sink="+hook.url, "--linger=6s", "--max-age=10s")
	if err != nil {
		return err
	}
	if err := v.take(ctx, "p", numbered(178)...); err != nil {
		return err
	}
	l, err := v.settled(ctx, 30*time.Second)
	if err == nil && l.Delivered != 178 {
		err = fmt.Errorf("the sink was back after 6 s of 10: %+v", l)
	}
	return err
}

// paceDecays: a Write of 1.2 s leaves no entry that lingered 3.5 s of its 4 the
// time for another such.
func paceDecays(ctx context.Context, s *stage) error {
	hook, err := s.receive(func(d delivery) reply {
		if d.number == 0 {
			rig.Sleep(ctx, 1200*time.Millisecond)
		}
		return reply{status: http.StatusOK}
	})
	if err != nil {
		return err
	}
	v, err := s.serve(ctx, "--sink="+hook.url, "--linger=3500ms", "--max-age=4s")
	if err != nil {
		return err
	}
	if err := v.take(ctx, "slow", numbered(128)...); err != nil { // a full batch, due at once
		return err
	}
	if _, err := v.settled(ctx, 15*time.Second); err != nil {
		return err
	}
	sent := 0
	return until(ctx, 40*time.Second, func() error {
		if sent++; sent%10 == 0 { // two a second
			if err := v.take(ctx, fmt.Sprint("later-", sent), `{"n":1}`); err != nil {
				return err
			}
		}
		a, err := v.account(ctx, false)
		if err == nil && a.Ledger.Delivered <= 128 {
			err = fmt.Errorf("nothing was delivered after the slow Write: %+v", a.Ledger)
		}
		return err
	})
}

// churn: every name is used once. Most partitions fail, some do not.
func churn(ctx context.Context, s *stage) error {
	hook, err := s.receive(func(d delivery) reply {
		if strings.HasPrefix(d.partition, "bad-") {
			return reply{status: http.StatusInternalServerError}
		}
		return reply{status: http.StatusOK}
	})
	if err != nil {
		return err
	}
	v, err := s.serve(ctx, "--sink="+hook.url, "--max-age=15s", "--linger=100ms")
	if err != nil {
		return err
	}
	const healthy, seconds = 10, 20
	var clients sync.WaitGroup
	failed := make([]error, seconds)
	for second := range seconds {
		clients.Go(func() {
			lines := make([]string, 0, 110)
			for i := range 110 {
				kind := "bad"
				if i%11 == 0 {
					kind = "good"
				}
				lines = append(lines, fmt.Sprintf(`{"partition":"%s-%d-%d","data":1}`, kind, second, i))
			}
			status, answer, err := v.post(ctx, "/v1/default", "application/x-ndjson", strings.Join(lines, "\n"))
			if err != nil || status != http.StatusOK {
				failed[second] = fmt.Errorf("%d %s (%w)", status, answer, err)
			}
		})
		rig.Sleep(ctx, time.Second)
	}
	clients.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	l, err := v.settled(ctx, 40*time.Second)
	if err == nil && l.Delivered < healthy*seconds*9/10 {
		err = fmt.Errorf("%d of %d healthy entries were delivered: %+v", l.Delivered, healthy*seconds, l)
	}
	return err
}

// staleEnd: the janitor is the only one to expire them.
func staleEnd(ctx context.Context, s *stage) error {
	const partitions, batch = 20_000, 1000
	v, err := s.serve(ctx, "--role=ingest", "--sink=null:", "--max-age=3s", "--linger=1s")
	if err != nil {
		return err
	}
	for at := 0; at < partitions; at += batch {
		var lines strings.Builder
		for i := range batch {
			_, _ = fmt.Fprintf(&lines, `{"partition":"p-%d","data":1}`+"\n", at+i)
		}
		status, answer, err := v.post(ctx, "/v1/default", "application/x-ndjson", lines.String())
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("%d %.200s (%w)", status, answer, err)
		}
	}
	return until(ctx, time.Minute, func() error {
		a, err := v.account(ctx, false)
		if err == nil && a.Ledger.Expired < partitions {
			err = fmt.Errorf("after a minute: %+v", a.Ledger)
		}
		return err
	})
}
