package job

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/lifecycletest"
)

func TestTheMoverFollowsALifecycle(t *testing.T) {
	t.Parallel()
	s := openStore(t, "embedded:", nil)
	lifecycletest.Run(t, func(*testing.T) lifecycletest.Component { return NewMover(s) })
}

// heardOf publishes a job whose end is told to a queue, and ends it: its follow-up is in the outbox.
func heardOf(t *testing.T, s *Store, queue string) DueShard {
	t.Helper()
	ns := s.Namespace("mail")
	p := &Publish{Namespace: ns, Queue: "work", Shard: ns.Shards("work")[0], Tries: 1, OnEnd: queue, Messages: payload("x")}
	lane := s.NewLane()
	runOne(s, lane, &Batch{Publishes: []*Publish{p}}, most)
	c := &Claim{Namespace: ns, Shard: p.Shard, Queues: []string{"work"}, TTR: time.Minute, Count: 1}
	runOne(s, lane, &Batch{Claims: []*Claim{c}}, most)
	if p.Err != nil || c.Err != nil || len(c.Jobs) != 1 {
		t.Fatal(p.Err, c.Err)
	}
	runOne(s, lane, &Batch{Acks: []*Ack{{Namespace: ns, Queue: "work", Ref: c.Jobs[0].Ref}}}, most)
	return DueShard{ns, p.Shard}
}

// A mover that dies between publish and ack leaves a job in the outbox, which the next one publishes
// again, under the same key.
func TestAFollowUpOfAMoverThatDiedIsPublishedOnce(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	at := heardOf(t, s, "done")
	c := &Claim{Namespace: at.Namespace, Shard: at.Shard, Queues: []string{outbox}, TTR: time.Millisecond, Count: 1}
	lane := s.NewLane()
	runOne(s, lane, &Batch{Claims: []*Claim{c}}, most)
	p, err := followUp(at.Namespace, &c.Jobs[0])
	if err != nil {
		t.Fatal(err)
	}
	runOne(s, lane, &Batch{Publishes: []*Publish{p}}, most)

	promoter := NewPromoter(s)
	if err := promoter.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = promoter.Stop(t.Context()) }()
	m := NewMover(s)
	redistest.Until(t, most, "the outbox is empty", func() bool {
		m.move(t.Context(), at)
		return ledgerOf(t, s).Acked == 2
	})
	if got, want := ledgerOf(t, s), (Ledger{Published: 3, Acked: 2, Ready: 1, Keys: 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A namespace that follow-ups have filled twice has no room for another: it waits in the outbox, and comes when there is room.
func TestAFollowUpWaitsForRoom(t *testing.T) {
	t.Parallel()
	s := openStore(t, "embedded:", func(p *Policy) { p.MaxQueues = 1 })
	at := heardOf(t, s, "done")
	ns := at.Namespace
	blocks := &Publish{Namespace: ns, Queue: "blocks", Shard: ns.Shards("blocks")[0], Tries: 1, Messages: payload("x")}
	lane := s.NewLane()
	runOne(s, lane, &Batch{Publishes: []*Publish{blocks}}, most)
	follows := &Publish{Namespace: ns, Queue: "follows", Shard: ns.Shards("follows")[0], Tries: 1, Messages: payload("x"), follows: true}
	runOne(s, lane, &Batch{Publishes: []*Publish{follows}}, most)
	if follows.Err != nil {
		t.Fatal(follows.Err)
	}
	m := NewMover(s)
	if got := m.waiting(t.Context()); len(got) != 1 {
		t.Fatalf("%v wait", got)
	}
	_, first := ns.Outbox()
	m.move(t.Context(), at)
	if got := ledgerOf(t, s); blocks.Err != nil || got.Published != 4 || got.Delayed != 1 {
		t.Fatalf("%v, got %+v", blocks.Err, got)
	}
	if jobs, since := ns.Outbox(); jobs != 1 || since != first {
		t.Errorf("%d wait since %d, want 1 since %d", jobs, since, first)
	}
	if m.waiting(t.Context()); testutil.ToFloat64(s.metrics.outbox) != 1 {
		t.Error("a follow-up that was sent back is not counted")
	}
	if jobs, since := ns.Outbox(); jobs != 1 || since != first {
		t.Errorf("sent back, %d wait since %d, want 1 since %d", jobs, since, first)
	}
	runOne(s, lane, &Batch{Acks: []*Ack{{Namespace: ns, Queue: "blocks", Ref: Ref{Shard: blocks.Shard, Seq: blocks.First}}}}, most)
	promoter := NewPromoter(s)
	if err := promoter.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = promoter.Stop(t.Context()) }()
	redistest.Until(t, most, "it is published", func() bool {
		m.move(t.Context(), at)
		return ledgerOf(t, s).Published == 5
	})
	m.waiting(t.Context())
	if jobs, since := ns.Outbox(); jobs != 0 || since != 0 || first == 0 {
		t.Errorf("%d wait since %d, at first since %d", jobs, since, first)
	}
}

// A process that knows of no follow-up finds those that others left.
func TestAMoverLearnsOfOutboxesThatOthersLeft(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Shared(t)
	s := openStore(t, url, nil)
	at := heardOf(t, s, "done")
	fresh := openStore(t, url, nil)
	fresh.prefix = s.prefix
	if err := fresh.SetNamespaces(t.Context(), map[string]Policy{}); err != nil {
		t.Fatal(err)
	}
	if err := fresh.SetNamespaces(t.Context(), map[string]Policy{"mail": at.Namespace.Policy}); err != nil {
		t.Fatal(err)
	}
	m := NewMover(fresh)
	if got := m.waiting(t.Context()); len(got) != 0 {
		t.Fatalf("it knows of %v", got)
	}
	m.learn(t.Context())
	if got := m.waiting(t.Context()); len(got) != 1 {
		t.Errorf("it found %v", got)
	}
}

// Follow-ups of one shard without end leave turns to the others.
func TestTheMoverLeavesAShardAfterSomePages(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	ns := s.Namespace("mail")
	lane := s.NewLane()
	for n := range 2 {
		p := &Publish{Namespace: ns, Queue: "work", Shard: ns.Shards("work")[0], Tries: 1, OnEnd: "done"}
		for range movePages*movePage/2 + n {
			p.Messages = append(p.Messages, payload("x")...)
		}
		if runOne(s, lane, &Batch{Publishes: []*Publish{p}}, most); p.Err != nil {
			t.Fatal(p.Err)
		}
	}
	if _, err := s.Purge(t.Context(), ns, "work", true); err != nil {
		t.Fatal(err)
	}
	m, at := NewMover(s), DueShard{ns, ns.Shards("work")[0]}
	for turn, want := range []int64{movePages * movePage, movePages*movePage + 1} {
		m.move(t.Context(), at)
		if got := ledgerOf(t, s).Acked; got != want || len(s.ends.take()) != 1 {
			t.Errorf("turn %d: %d moved, want %d, and a turn to come", turn, got, want)
		}
	}
}
