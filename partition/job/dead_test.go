package job

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
)

// bury makes n jobs of a queue dead.
func bury(t *testing.T, s *Store, lane *Lane, n int, cause func(i int) string) {
	t.Helper()
	ns := s.Namespace("mail")
	for done := 0; done < n; {
		part := min(500, n-done)
		p := &Publish{Namespace: ns, Queue: "q", Tries: 3, Messages: make([]Message, part)}
		s.Run(t.Context(), lane, &Batch{Publishes: []*Publish{p}})
		c := &Claim{Namespace: ns, Queues: []string{"q"}, TTR: time.Minute, Count: part}
		s.Run(t.Context(), lane, &Batch{Claims: []*Claim{c}})
		if p.Err != nil || c.Err != nil || len(c.Jobs) != part {
			t.Fatal(p.Err, c.Err, len(c.Jobs))
		}
		b := &Batch{}
		for _, j := range c.Jobs {
			b.Settles = append(b.Settles, &Settle{Namespace: ns, Queue: "q", Ref: j.Ref, Attempt: 1, Verb: Bury, Error: cause(done)})
			done++
		}
		s.Run(t.Context(), lane, b)
	}
}

// What dies again while an act goes on is not of it: a target that fails at once would be called until the limit.
func TestAnActOnDeadLettersEndsWithThoseThatDiedBefore(t *testing.T) {
	t.Parallel()
	s := openStore(t, redistest.Start(t).URL(), nil)
	ns, lane := s.Namespace("mail"), s.NewLane()
	bury(t, s, lane, 150, func(int) string { return "down" })
	c, key := s.backend.Background, ns.shardAt(0).dead("q")
	later, err := c.ZRange(t.Context(), key, 100, -1).Result()
	for _, seq := range later {
		c.ZIncrBy(t.Context(), key, 60_000, seq)
	}
	n, acted := s.ActOnDead(t.Context(), &DeadAct{Namespace: ns, Queue: "q", Verb: RespawnDead, Limit: 10_000})
	if n != 100 || err != nil || acted != nil || c.ZCard(t.Context(), key).Val() != 50 {
		t.Errorf("%d were respawned, %v, %v", n, err, acted)
	}
}

// endAfter ends a context once a number of commands was sent.
type endAfter struct {
	left int
	end  context.CancelFunc
}

func (e *endAfter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e *endAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if e.left--; e.left == 0 {
			e.end()
		}
		return err
	}
}

func (e *endAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if e.left--; e.left == 0 {
			e.end()
		}
		return err
	}
}

func TestAnActOnDeadLettersGoesOnWhereItEndedAlsoWhenItFoundNone(t *testing.T) {
	t.Parallel()
	s := openStore(t, redistest.Start(t).URL(), nil)
	ns, lane := s.Namespace("mail"), s.NewLane()
	const jobs = 3500
	bury(t, s, lane, jobs, func(i int) string {
		if i == jobs-1 {
			return "rare"
		}
		return "often"
	})
	a := &DeadAct{Namespace: ns, Queue: "q", Verb: RespawnDead, Error: "rare", Limit: 10}
	hook := &endAfter{}
	s.backend.Background.AddHook(hook)
	last := ""
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithCancel(t.Context())
		hook.left, hook.end = 1, cancel
		n, err := s.ActOnDead(ctx, a)
		cancel()
		if err == nil {
			if n != 1 || tries < 3 {
				t.Errorf("%d were respawned at try %d", n, tries)
			}
			break
		}
		if n != 0 || a.Next == "" || a.Next == last || tries == 10 {
			t.Fatalf("try %d: got %d, %v, next %q", tries, n, err, a.Next)
		}
		last, a.After, a.Next = a.Next, a.Next, ""
	}
	for _, after := range []string{"x", "0", "0-1", "-1-1-1", "0-1.1.1-1", "0-1-x", "0--1", "0-1-", "0-1-99999999999999999", "99999999999999999999-1-1"} {
		a.After = after
		if n, err := s.ActOnDead(t.Context(), a); n != 0 || !errors.Is(err, ErrBadAfter) {
			t.Errorf("after %q: got %d, %v", after, n, err)
		}
	}
}

// The lane of a queue that is quiet for days must not hold the bodies and jobs of its last
// flush.
func TestALaneKeepsNothingOfWhatItHasRun(t *testing.T) {
	t.Parallel()
	s := openAt(t, redistest.Start(t).URL(), "sw", true, nil)
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns, l := s.Namespace("mail"), s.NewLane()
	run := func() (_ weak.Pointer[Publish], _ weak.Pointer[Claim], _ weak.Pointer[Ack], _ weak.Pointer[Settle], answered bool) {
		p := &Publish{Namespace: ns, Queue: "q", Tries: 3, Messages: []Message{{Payload: []byte("x")}, {Payload: []byte("y")}}}
		s.Run(t.Context(), l, &Batch{Publishes: []*Publish{p}})
		c := &Claim{Namespace: ns, Queues: []string{"q"}, TTR: time.Hour, Count: 2}
		s.Run(t.Context(), l, &Batch{Claims: []*Claim{c}})
		if len(c.Jobs) != 2 { // on a loaded machine Redis seems to be away
			return
		}
		a := &Ack{Namespace: ns, Queue: "q", Ref: c.Jobs[0].Ref}
		b := &Settle{Namespace: ns, Queue: "q", Ref: c.Jobs[1].Ref, Verb: Bury}
		s.Run(t.Context(), l, &Batch{Acks: []*Ack{a}, Settles: []*Settle{b}})
		return weak.Make(p), weak.Make(c), weak.Make(a), weak.Make(b), a.Err == nil && b.Err == nil
	}
	p, c, a, b, answered := run()
	redistest.Until(t, most, "all are answered", func() bool {
		if !answered {
			p, c, a, b, answered = run()
		}
		return answered
	})
	for range 2 {
		runtime.GC()
	}
	if p.Value() != nil || c.Value() != nil || a.Value() != nil || b.Value() != nil {
		t.Errorf("it keeps a publish %v, a claim %v, an ack %v, a settle %v", p.Value() != nil, c.Value() != nil, a.Value() != nil, b.Value() != nil)
	}
	runtime.KeepAlive(l)
}
