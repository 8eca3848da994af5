package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// Trigger publishes runs of a schedule beside its ticks. Without runs it finds what an earlier one published under its
// Key, or is ErrNoSchedule.
type Trigger struct {
	Namespace   *Namespace
	Queue, Name string
	Finished    bool          // ErrUnfinished where the last run is not
	Key         string        // a repeat under it publishes nothing; "": none
	KeyTTL      time.Duration // how long that holds; 0: 2m
	Runs

	First    int64 // sequence of the first job
	Count    int   // of jobs
	Repeated bool
}

// Trigger publishes runs now.
func (s *scheduler) Trigger(ctx context.Context, t *Trigger) error {
	sh, err := t.Namespace.scheduleShard(t.Queue, t.Name)
	each := 0
	if len(t.List) > 0 {
		each = len(t.List[0].Messages)
	}
	if err != nil || each == 0 && t.Key == "" {
		return errors.Join(err, partition.ErrBroken)
	}
	keep := int64(0)
	if t.Key != "" {
		if keep = ms(t.KeyTTL); keep == 0 {
			keep = keyTTL
		}
	}
	now, err := s.backend.KnownTime(ctx)
	if err != nil {
		return backend.Wrap(backend.ErrUnavailable, err) // nothing was published
	}
	ns := t.Namespace
	sum := sha256.Sum256([]byte(t.Name + " " + t.Key))
	keys := []string{sh.Ledger, sh.queues, sh.states,
		sh.Prefix + "run:" + t.Queue + ":" + hex.EncodeToString(sum[:16]),
		sh.onEnd, sh.ready(t.Queue), sh.jobs(t.Queue), sh.dead(t.Queue)}
	argv := []any{
		ns.part(ns.Policy.MaxJobs),
		ns.part(ns.Policy.MaxQueues),
		ns.part(ns.Policy.MaxKeys),
		sh.channel,
		s.wake,
		t.Queue,
		t.Name,
		t.Finished,
		keep,
		t.watch(t.Name),
		each,
	}
	for _, run := range t.List {
		argv = t.appendRecords(
			append(argv, run.Tick, string(run.Cause)),
			now,
			t.Namespace.Tries(t.Queue),
			run.Messages,
		)
	}
	round := s.space.Round()
	c := backend.NewCall(luajob.Trigger, sh.Breaker, keys, argv...)
	status, err := s.runSchedule(ctx, ns, c)
	if err != nil {
		return err
	}
	if err := triggerErrors[status]; err != nil {
		return err
	}
	t.First = c.Rest.Int()
	t.Count = int(c.Rest.Int())
	t.Repeated = status == 2
	if !t.Repeated && !c.Rest.Broken {
		s.notePublished(t.Namespace, t.Queue, "schedule "+t.Name, Ref{Shard: sh.Number, Seq: t.First}, t.Count)
	}
	if !t.Repeated {
		sh.Stored(round, t.Count)
	}
	return c.Unconfirmed
}
