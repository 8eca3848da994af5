package job

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
)

// A load publishes, claims and acks in every queue until stop.
type load struct {
	s      *Store
	queues []string
	ended  chan struct{}
	doing  sync.WaitGroup

	mu              sync.Mutex
	worked          map[string]time.Time // when a job of the queue was last acked
	stored, unknown int
	acked           map[string]bool
	maybeAcked      map[string]bool // an ack with an unknown outcome
	errs            map[string]int
}

func startLoad(t *testing.T, s *Store, queues []string) *load {
	l := &load{s: s, queues: queues, ended: make(chan struct{}), worked: map[string]time.Time{}, acked: map[string]bool{}, maybeAcked: map[string]bool{}, errs: map[string]int{}}
	ns := s.Namespace("mail")
	for _, q := range queues {
		l.doing.Go(func() {
			lane := s.NewLane()
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			var acks []*Ack
			for {
				select {
				case <-l.ended:
					return
				case <-tick.C:
				}
				shard := ns.Shards(q)[0]
				p := &Publish{Namespace: ns, Queue: q, Shard: shard, Tries: 1000, Messages: payload("x")}
				c := &Claim{Namespace: ns, Queues: []string{q}, Shard: shard, TTR: 300 * time.Millisecond, Count: 10}
				began := time.Now()
				runOne(s, lane, &Batch{Acks: acks, Publishes: []*Publish{p}, Claims: []*Claim{c}}, time.Second)
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("a batch with 1s took %v", took)
				}
				l.mu.Lock()
				var again []*Ack
				for _, a := range acks {
					id := ns.ID(a.Ref.Shard, q, a.Ref.Seq, "")
					switch {
					case a.Err == nil:
						l.acked[id] = true
						l.worked[q] = time.Now()
					default:
						l.maybeAcked[id] = true
						again = append(again, a)
					}
				}
				acks = again
				switch {
				case p.Err == nil:
					l.stored++
				case errors.Is(p.Err, backend.ErrUnknown):
					l.unknown++
				case !errors.Is(p.Err, backend.ErrUnavailable):
					t.Errorf("%s: publish: %v", q, p.Err)
				}
				if c.Err != nil && !errors.Is(c.Err, backend.ErrUnknown) && !errors.Is(c.Err, backend.ErrUnavailable) {
					t.Errorf("%s: claim: %v", q, c.Err)
				}
				if c.Err != nil {
					l.errs["claim"]++
				}
				for _, j := range c.Jobs {
					acks = append(acks, &Ack{Namespace: ns, Queue: q, Ref: j.Ref})
				}
				l.mu.Unlock()
			}
		})
	}
	return l
}

// workedSince reports whether every queue acked a job after a time.
func (l *load) workedSince(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.queues {
		if !l.worked[q].After(at) {
			return false
		}
	}
	return true
}

func (l *load) stop() {
	close(l.ended)
	l.doing.Wait()
}

// queuesOnEach are names, one on each shard.
func queuesOnEach(ns *Namespace) (names []string) {
	for shard := range ns.ShardCount() {
		for i := 0; len(names) == shard; i++ {
			if name := fmt.Sprint("q", i); ns.Shards(name)[0] == shard {
				names = append(names, name)
			}
		}
	}
	return names
}

func failover(t *testing.T, url string, shards int, fail func()) {
	t.Helper()
	s := openAt(t, url, "sw", true, func(p *Policy) { p.Shards = shards })
	promoter := NewPromoter(s)
	if err := promoter.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = promoter.Stop(context.Background()) }()
	queues := queuesOnEach(s.Namespace("mail"))
	wakes, e := startWakes(t, s)
	for shard, q := range queues {
		wakes.Want(s.Namespace("mail"), shard, q)
		e.until(t, 1, WakeSubscribed, q)
	}
	l := startLoad(t, s, queues)
	redistest.Until(t, most, "jobs flow", func() bool { return l.workedSince(time.Time{}) })
	began := time.Now()
	fail()
	promoted := time.Now()
	redistest.Until(t, most, "jobs flow after the failover", func() bool { return l.workedSince(promoted) })
	t.Logf("promoted after %v, all queues back after %v", promoted.Sub(began), time.Since(began))
	l.stop()
	t.Logf("%d stored, %d unknown, %d acked, %d claims failed", l.stored, l.unknown, len(l.acked), l.errs["claim"])
	if l.errs["claim"] == 0 {
		t.Error("nothing failed: this proves nothing")
	}
	e.until(t, 1, WakeLost, "")
	e.until(t, len(queues)+1, WakeSubscribed, "") // the lost ones again
	// A connection to the old master may still be in the pool.
	redistest.Until(t, most, "the ledger is read", func() bool {
		_, err := s.Ledger(t.Context(), s.Namespace("mail"))
		return err == nil
	})
	got := ledgerOf(t, s)
	if got.Lost+got.Expired+got.Deleted+got.Dead != 0 || got.Ready < 0 {
		t.Errorf("got %+v", got)
	}
}

func TestSentinelFailoverIsSurvived(t *testing.T) {
	t.Parallel()
	servers := redistest.StartSentinel(t)
	failover(t, servers.URL(), 1, func() { servers.Failover(t) })
}

func TestClusterFailoverIsSurvived(t *testing.T) {
	t.Parallel()
	servers := redistest.StartCluster(t)
	failover(t, servers.URL(), 6, func() { servers.Failover(t, "sw:{mail.0}:ledger") })
}

// A slot moves to another master while jobs flow through it: nothing is lost, nothing acked
// comes again, and the account stays exact.
func TestASlotMovesUnderLoad(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 2)
	s := openAt(t, servers.URL(), "sw", true, nil)
	promoter := NewPromoter(s)
	if err := promoter.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = promoter.Stop(context.Background()) }()
	queues := []string{"a", "b", "c"}
	wakes, e := startWakes(t, s)
	wakes.Want(s.Namespace("mail"), 0, "idle")
	e.until(t, 1, WakeSubscribed, "idle")
	l := startLoad(t, s, queues)
	redistest.Until(t, most, "jobs flow", func() bool { return l.workedSince(time.Time{}) })
	from := servers.MasterOf("sw:{mail.0}:ledger")
	servers.MoveSlot(t, "sw:{mail.0}:ledger", from, 1-from)
	moved := time.Now()
	redistest.Until(t, most, "jobs flow on the other master", func() bool { return l.workedSince(moved) })
	l.stop()
	e.until(t, 2, WakeSubscribed, "idle")
	publishOne(t, s, "idle")
	e.until(t, 1, WakeHeard, "idle")
	got := ledgerOf(t, s)
	t.Logf("%d stored, %d unknown, %d acked, %d claims failed; %+v", l.stored, l.unknown, len(l.acked), l.errs["claim"], got)
	if got.Published < int64(l.stored+1) || got.Published > int64(l.stored+l.unknown+1) {
		t.Errorf("published %d, want %d to %d", got.Published, l.stored+1, l.stored+l.unknown+1)
	}
	if got.Lost+got.Expired+got.Deleted+got.Dead != 0 || got.Acked < int64(len(l.acked)) || got.Acked > int64(len(l.acked)+len(l.maybeAcked)) {
		t.Errorf("got %+v, want %d acked", got, len(l.acked))
	}
}

// What has to wait for its keys waits, and so do operators. Claims ask again.
func TestPublishesAndAPurgeWaitForASlotThatMoves(t *testing.T) {
	t.Parallel()
	servers := redistest.StartMasters(t, 2)
	s := openAt(t, servers.URL(), "sw", true, nil)
	publishOne(t, s, "old")
	ns, key := s.Namespace("mail"), "sw:{mail.0}:ledger"
	p := &Publish{Namespace: ns, Queue: "new", Tries: 3, Messages: payload("x")}
	c := &Claim{Namespace: ns, Queues: []string{"idle"}, TTR: time.Minute, Count: 1}
	from := servers.MasterOf(key)
	for what, act := range map[string]func() error{
		"a purge": func() error {
			_, err := s.Purge(t.Context(), ns, "never", true)
			return err
		},
		"a publish": func() error {
			runOne(s, s.NewLane(), &Batch{Publishes: []*Publish{p}, Claims: []*Claim{c}}, most)
			return p.Err
		},
	} {
		servers.BeginMove(t, key, from, 1-from)
		ended := make(chan error, 1)
		go func() { ended <- act() }()
		servers.UntilRejected(t, from)
		servers.MoveSlot(t, key, from, 1-from)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", what, err)
		}
		from = 1 - from
	}
	if !backend.Moving(c.Err) {
		t.Errorf("claim: %v", c.Err)
	}
}
