package php

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

func TestALaneTellsOfClaimsToTakeBack(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	s.publish("mail", `{"job":"A@f"}`)
	s.publish("other", `{"job":"A@f"}`)
	memory := s.lane.Other.(*lane)
	lost := s.claim(1, "other")
	memory.unknown[target{"shop", "other"}] = fmt.Sprintf("%s.%d", memory.name, memory.claims)
	if jobs := s.claim(1, "mail"); len(jobs) != 1 || !s.lane.Unknown {
		t.Errorf("got %d jobs, unknown %v", len(jobs), s.lane.Unknown)
	}
	if err := s.Revert(t.Context(), s.lane); err != nil {
		t.Fatal(err)
	}
	if again := s.claim(1, "other"); len(again) != 1 || again[0].Attempt != lost[0].Attempt || s.lane.Unknown {
		t.Errorf("got %+v, unknown %v", again, s.lane.Unknown)
	}
}

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
