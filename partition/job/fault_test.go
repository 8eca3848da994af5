package job

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
)

// most is how long anything a test waits for may take.
const most = 20 * time.Second

func payload(text string) []Message { return []Message{{Payload: []byte(text)}} }

// runOne runs a batch with a time limit of its own.
func runOne(s *Store, l *Lane, b *Batch, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	s.Run(ctx, l, b)
}

func ledgerOf(t *testing.T, s *Store) Ledger {
	t.Helper()
	l, err := s.Ledger(t.Context(), s.Namespace("mail"))
	if err != nil {
		t.Fatal(err)
	}
	residual, err := s.Audit(t.Context(), s.Namespace("mail"))
	if residual != 0 || err != nil {
		t.Errorf("audit: %d %v", residual, err)
	}
	return l
}

func TestAFullStoreRejectsPublishesAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openAt(t, server.URL(), "sw", true, nil)
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns, l := s.Namespace("mail"), s.NewLane()
	p := &Publish{Namespace: ns, Queue: "q", Tries: 3}
	for i := range 6 {
		p.Messages = append(p.Messages, payload(fmt.Sprint(i))...)
	}
	runOne(s, l, &Batch{Publishes: []*Publish{p}}, most)
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	redistest.Full.Begin(t, server)
	runOne(s, l, &Batch{Publishes: []*Publish{p}}, most)
	if !errors.Is(p.Err, backend.ErrFull) {
		t.Errorf("publish: %v", p.Err)
	}
	c := &Claim{Namespace: ns, Queues: []string{"q"}, TTR: time.Minute, Count: 5}
	runOne(s, l, &Batch{Claims: []*Claim{c}}, most)
	if c.Err != nil || len(c.Jobs) != 5 {
		t.Fatalf("claim: %v, %d jobs", c.Err, len(c.Jobs))
	}
	settle := func(i int, verb Verb, after time.Duration) *Settle {
		return &Settle{Namespace: ns, Queue: "q", Ref: c.Jobs[i].Ref, Attempt: 1, Verb: verb, After: after}
	}
	b := Batch{
		Acks:    []*Ack{{Namespace: ns, Queue: "q", Ref: c.Jobs[0].Ref}},
		Settles: []*Settle{settle(1, Nack, time.Hour), settle(2, Bury, 0), settle(3, Requeue, 0), settle(4, Touch, time.Hour)},
	}
	runOne(s, l, &b, most)
	if !b.Acks[0].Acked {
		t.Errorf("ack: %v", b.Acks[0].Err)
	}
	for i, want := range []State{Delayed, Dead, Ready, Leased} {
		if b.Settles[i].State != want || b.Settles[i].Err != nil {
			t.Errorf("settle %d: %v %v, want %v", i, b.Settles[i].State, b.Settles[i].Err, want)
		}
	}
	redistest.Full.End(t, server)
	if got, want := ledgerOf(t, s), (Ledger{Published: 6, Acked: 1, Dead: 1, Ready: 2, Delayed: 1, Leased: 1, Died: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAnOutageIsNeverAnEmptyQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openAt(t, server.URL(), "sw", true, nil)
	publishOne(t, s, "q")
	ns, l := s.Namespace("mail"), s.NewLane()
	server.Kill()
	for range 5 {
		c := &Claim{Namespace: ns, Queues: []string{"q"}, TTR: time.Minute, Count: 5}
		runOne(s, l, &Batch{Claims: []*Claim{c}}, most)
		if c.Err == nil {
			t.Fatal("a claim without a server has no error")
		}
		if _, err := s.Peek(t.Context(), ns, "q"); err == nil || errors.Is(err, ErrNoJob) {
			t.Errorf("peek: %v", err)
		}
		if _, _, err := s.Get(t.Context(), ns, "q", Ref{Seq: 1}); err == nil || errors.Is(err, ErrNoJob) {
			t.Errorf("get: %v", err)
		}
		if _, err := s.Counts(t.Context(), ns, "q"); err == nil {
			t.Error("counts without a server have no error")
		}
	}
	for _, rejection := range redistest.Rejections {
		server.Launch()
		rejection.Begin(t, server)
		redistest.Until(t, most, rejection.Word+" is the answer", func() bool {
			p := &Publish{Namespace: ns, Queue: "q", Tries: 1, Messages: payload("x")}
			runOne(s, l, &Batch{Publishes: []*Publish{p}}, most)
			return p.Err != nil && errors.Is(p.Err, backend.ErrUnavailable) && isAnswer(p.Err)
		})
		rejection.End(t, server)
		server.Kill()
	}
}

// Workers publish, claim and settle over a line that loses requests and replies. Every
// publish is stored once or not at all; no job is handed out twice while its lease holds;
// nothing acked comes again; the account is exact.
func TestUnknownOutcomesAreTakenBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	line := redistest.StartFaultLine(t, server.Addr)
	s := openAt(t, line.URL, "sw", true, func(p *Policy) { p.Shards = 2 })
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	ns := s.Namespace("mail")
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(7, 7)) // #nosec G404 -- a test
	line.Set(func() (redistest.Fault, float64) {
		if r.IntN(4) > 0 {
			return redistest.Passes, 0
		}
		return []redistest.Fault{redistest.LosesRequest, redistest.CutsRequest, redistest.LosesReply, redistest.CutsReply, redistest.SlicesReply}[r.IntN(5)], r.Float64()
	})
	rounds := 150
	if testing.Short() {
		rounds = 40
	}
	var stored, unknown, acked int
	held, done := map[string]bool{}, map[string]bool{}
	var workers sync.WaitGroup
	queues := []string{"a", "b", "c", "d"}
	lanes := make([]*Lane, 4)
	for i := range lanes {
		lanes[i] = s.NewLane()
		workers.Go(func() {
			for range rounds {
				q := queues[i]
				shard := ns.Shards(q)[0]
				p := &Publish{Namespace: ns, Queue: q, Shard: shard, Tries: 100, Messages: slices.Repeat(payload("x"), 3)}
				c := &Claim{Namespace: ns, Queues: []string{q}, Shard: shard, TTR: time.Hour, Count: 4}
				runOne(s, lanes[i], &Batch{Publishes: []*Publish{p}, Claims: []*Claim{c}}, most)
				mu.Lock()
				switch {
				case p.Err == nil:
					stored += 3
				case errors.Is(p.Err, backend.ErrUnknown):
					unknown += 3
				case !errors.Is(p.Err, backend.ErrUnavailable):
					t.Errorf("publish: %v", p.Err)
				}
				var acks []*Ack
				for _, j := range c.Jobs {
					if held[j.ID] || done[j.ID] {
						t.Errorf("%s is handed out again; acked: %v", j.ID, done[j.ID])
					}
					held[j.ID] = true
					acks = append(acks, &Ack{Namespace: ns, Queue: q, Ref: j.Ref})
				}
				mu.Unlock()
				for len(acks) > 0 {
					runOne(s, lanes[i], &Batch{Acks: acks}, most)
					var again []*Ack
					for _, a := range acks {
						if a.Err != nil {
							again = append(again, a)
							continue
						}
						mu.Lock()
						id := ns.ID(a.Ref.Shard, q, a.Ref.Seq, "")
						delete(held, id)
						done[id] = true
						acked++
						mu.Unlock()
					}
					acks = again
				}
			}
		})
	}
	workers.Wait()
	line.Set(nil)
	for _, l := range lanes {
		if err := s.Revert(t.Context(), l); err != nil {
			t.Error(err)
		}
	}
	got := ledgerOf(t, s)
	t.Logf("%d stored, %d unknown, %d acked, %+v", stored, unknown, acked, got)
	if got.Published < int64(stored) || got.Published > int64(stored+unknown) {
		t.Errorf("published %d, want %d to %d", got.Published, stored, stored+unknown)
	}
	if got.Leased != 0 || got.Acked != int64(acked) || got.Lost+got.Expired+got.Deleted+got.Dead != 0 {
		t.Errorf("got %+v, want %d acked and none leased", got, acked)
	}
	if unknown == 0 {
		t.Error("nothing had an unknown outcome: this proves nothing")
	}
}

// A claim that is taken back is not counted. A lane takes back before it claims again.
func TestARevertedClaimIsNotCounted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	line := redistest.StartFaultLine(t, server.Addr)
	s := openAt(t, line.URL, "sw", true, nil)
	publishOne(t, s, "q")
	ns, l := s.Namespace("mail"), s.NewLane()
	c := &Claim{Namespace: ns, Queues: []string{"q"}, TTR: time.Hour, Count: 4}
	for _, byItself := range []bool{false, false, true} {
		lost := false
		line.Set(func() (redistest.Fault, float64) {
			if lost {
				return redistest.Passes, 0
			}
			lost = true
			return redistest.LosesReply, 0
		})
		runOne(s, l, &Batch{Claims: []*Claim{c}}, most)
		if !errors.Is(c.Err, backend.ErrUnknown) || len(c.Jobs) != 0 {
			t.Fatalf("got %v and %d jobs", c.Err, len(c.Jobs))
		}
		if got := ledgerOf(t, s); got.Leased != 1 {
			t.Fatalf("got %+v", got)
		}
		if byItself {
			break
		}
		if err := s.Revert(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	runOne(s, l, &Batch{Claims: []*Claim{c}}, most)
	if c.Err != nil || len(c.Jobs) != 1 || c.Jobs[0].Attempt != 1 {
		t.Errorf("got %v and %+v", c.Err, c.Jobs)
	}
}
