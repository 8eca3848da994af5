package job

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// The lane of a queue that is quiet for days must not hold the bodies and jobs of its last
// flush.
func TestALaneKeepsNothingOfWhatItHasRun(t *testing.T) {
	t.Parallel()
	s := openAt(t, redistest.Start(t).URL(), "sw", true, nil)
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

// Of a paused queue no shard gives a job, whichever layout it is of and whatever the process knew
// that paused it; a list shows the jobs of all layouts.
func TestAPauseHoldsInAllLayouts(t *testing.T) {
	t.Parallel()
	w := &walker{T: t, addr: redistest.Start(t).Addr, prefix: "sw"}
	w.open(1)
	w.open(1)
	knows, ns, l := w.processes[0].store, w.processes[0].ns, w.processes[0].lane
	late, lates := w.processes[1].store, w.processes[1].ns
	fine := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(what, err)
		}
	}
	publish := func(text string) {
		p := &Publish{Namespace: ns, Queue: "q", Tries: 3, Messages: payload(text)}
		p.Shard = ns.Homes("q")[0]
		knows.Run(t.Context(), l, &Batch{Publishes: []*Publish{p}})
		fine("publish", p.Err)
	}
	claimed := func() (texts []string) {
		for _, shard := range ns.Shards("q") {
			c := &Claim{Namespace: ns, Queues: []string{"q"}, TTR: time.Hour, Count: 9, Shard: shard}
			knows.Run(t.Context(), l, &Batch{Claims: []*Claim{c}})
			fine("claim", c.Err)
			for _, j := range c.Jobs {
				texts = append(texts, string(j.Payload))
			}
		}
		return texts
	}
	more := partition.ReshardRequest{Shards: 3}
	publish("old")
	fine("pause", knows.Pause(t.Context(), ns, "q", partition.Pause{By: "ops"}))
	if _, err := knows.Reshard(t.Context(), ns, more); err == nil || !strings.Contains(err.Error(), "queue q is paused") {
		t.Fatal("reshard beside a pause: ", err)
	}
	_, err := knows.Resume(t.Context(), ns, "q")
	fine("resume", err)
	_, err = knows.Reshard(t.Context(), ns, more)
	fine("reshard", err)
	if err := late.Pause(t.Context(), lates, "q", partition.Pause{}); !errors.Is(err, errMoving) {
		t.Fatal("pause while the shards change: ", err)
	}
	for _, sh := range ns.placed().shards {
		fine("time", knows.backend.In.HDel(t.Context(), sh.Ledger, "held").Err())
	}
	fine("pause", late.Pause(t.Context(), lates, "q", partition.Pause{By: "ops"}))
	publish("new")
	if got := claimed(); len(got) > 0 || len(ns.Shards("q")) < 2 {
		t.Fatal("while it is paused, from shards", ns.Shards("q"), got)
	}
	var listed []string
	for page := (List{Queue: "q", State: Ready, Limit: 1, Data: true}); ; {
		jobs, next, err := knows.List(t.Context(), ns, page)
		fine("list", err)
		for _, j := range jobs {
			listed = append(listed, string(j.Payload))
		}
		if page.After = next; next == "" {
			break
		}
	}
	_, err = late.Resume(t.Context(), lates, "q")
	fine("resume", err)
	if got, both := claimed(), []string{"old", "new"}; !slices.Equal(got, both) || !slices.Equal(listed, both) {
		t.Error("claimed", got, "listed", listed)
	}
}
