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
	ns, l := s.Namespace("mail"), s.NewLane()
	run := func() (weak.Pointer[Publish], weak.Pointer[Claim], weak.Pointer[Ack], weak.Pointer[Settle]) {
		p := &Publish{Namespace: ns, Queue: "q", Tries: 3, Messages: []Message{{Payload: []byte("x")}, {Payload: []byte("y")}}}
		s.Run(t.Context(), l, &Batch{Publishes: []*Publish{p}})
		c := &Claim{Namespace: ns, Queues: []string{"q"}, TTR: time.Hour, Count: 2}
		s.Run(t.Context(), l, &Batch{Claims: []*Claim{c}})
		if p.Err != nil || c.Err != nil || len(c.Jobs) != 2 {
			t.Fatal(p.Err, c.Err, len(c.Jobs))
		}
		a := &Ack{Namespace: ns, Queue: "q", Ref: c.Jobs[0].Ref}
		b := &Settle{Namespace: ns, Queue: "q", Ref: c.Jobs[1].Ref, Verb: Bury}
		s.Run(t.Context(), l, &Batch{Acks: []*Ack{a}, Settles: []*Settle{b}})
		return weak.Make(p), weak.Make(c), weak.Make(a), weak.Make(b)
	}
	p, c, a, b := run()
	for range 2 {
		runtime.GC()
	}
	if p.Value() != nil || c.Value() != nil || a.Value() != nil || b.Value() != nil {
		t.Errorf("it keeps a publish %v, a claim %v, an ack %v, a settle %v", p.Value() != nil, c.Value() != nil, a.Value() != nil, b.Value() != nil)
	}
	runtime.KeepAlive(l)
}
