package job

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/spillway-io/spillway/lua/redistest"
)

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
