package php

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

func TestAWaitingClaimIsWokenWhereTheUserMayNotBlock(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	if err := s.redis.Do(t.Context(), "ACL", "SETUSER", "default", "-blmove").Err(); err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 1)
	w := NewWakes(s.Store, func(e job.WakeEvent) {
		if e.Kind == job.WakeHeard {
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	})
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Stop(context.Background()) }()
	w.Want(s.ns, 0, "mail")
	defer w.Unwant(s.ns, 0, "mail")
	s.redis.RPush(t.Context(), "queues:mail", `{"job":"A@f","attempts":0}`)
	select {
	case <-heard:
	case <-time.After(10 * time.Second):
		t.Error("nobody was woken")
	}
}
