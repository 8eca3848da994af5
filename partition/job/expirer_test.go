package job

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/lifecycletest"
)

func TestTheExpirerFollowsALifecycle(t *testing.T) {
	t.Parallel()
	s := openStore(t, "embedded:", nil)
	lifecycletest.Run(t, func(*testing.T) lifecycletest.Component { return NewExpirer(s) })
}

// store1 publishes jobs of a queue and returns the sequence of the first.
func store1(t *testing.T, s *Store, queue string, n int, delay, ttl time.Duration) int64 {
	t.Helper()
	ns := s.Namespace("mail")
	p := &Publish{Namespace: ns, Queue: queue, Shard: ns.Shards(queue)[0], Tries: 2, Delay: delay, TTL: ttl}
	for range n {
		p.Messages = append(p.Messages, payload("x")...)
	}
	runOne(s, s.NewLane(), &Batch{Publishes: []*Publish{p}}, most)
	if p.Err != nil {
		t.Fatal(p.Err)
	}
	return p.First
}

// expireAll walks until the condition holds.
func expireAll(t *testing.T, s *Store, what string, done func() bool) {
	t.Helper()
	e := NewExpirer(s)
	redistest.Until(t, most, what, func() bool {
		e.began, e.audited = time.Time{}, map[*shard]time.Time{}
		e.round(t.Context())
		return done()
	})
}

func TestJobsHiddenByLongerLivedOnesExpire(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "embedded:", "redis": "redis://" + redistest.Shared(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, url, func(p *Policy) { p.Shards = 2 })
			store1(t, s, "q", 1, 0, 0)
			store1(t, s, "q", 700, 0, time.Millisecond)
			store1(t, s, "r", 3, time.Hour, time.Millisecond)
			expireAll(t, s, "all of them expire", func() bool { return ledgerOf(t, s).Expired == 703 })
			if got, want := ledgerOf(t, s), (Ledger{Published: 704, Expired: 703, Ready: 1}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// No expirer and no promoter runs here: nothing has found that the job expired.
func TestTheIDOfAJobThatExpiredIsFree(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"embedded": "embedded:", "redis": "redis://" + redistest.Shared(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, url, nil)
			store1(t, s, "q", 1, 0, 0)
			publish := func(ttl time.Duration) *Publish {
				p := &Publish{Namespace: s.Namespace("mail"), Queue: "q", Tries: 2, TTL: ttl, CallerID: "order-17", Messages: payload("x")}
				runOne(s, s.NewLane(), &Batch{Publishes: []*Publish{p}}, most)
				if p.Err != nil {
					t.Fatal(p.Err)
				}
				return p
			}
			first := publish(time.Millisecond)
			redistest.Until(t, most, "the id is free", func() bool { return !publish(0).Exists })
			if again := publish(0); !again.Exists || again.First == first.First {
				t.Errorf("got %+v, want that the second job exists", again)
			}
			if got, want := ledgerOf(t, s), (Ledger{Published: 3, Expired: 1, Ready: 2}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			ack := &Ack{Namespace: s.Namespace("mail"), Queue: "q", Ref: Ref{Seq: first.First, CallerID: "order-17"}}
			runOne(s, s.NewLane(), &Batch{Acks: []*Ack{ack}}, most)
			if ack.Err != nil || ack.Acked || ack.Deleted {
				t.Errorf("a delete of the job that expired: got %+v", ack)
			}
		})
	}
}

func TestJobsThatLostTheirPlaceAreReadyAgain(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	client, sh := redistest.SharedClient(t), s.Namespace("mail").shardAt(0)
	first := store1(t, s, "q", 5, 0, 0)
	store1(t, s, "gone", 3, 0, 0)
	delayed := store1(t, s, "late", 1, time.Hour, 0)
	client.LRem(t.Context(), sh.ready("q"), 1, strconv.FormatInt(first+2, 10))
	client.Del(t.Context(), sh.ready("gone"))
	client.ZRem(t.Context(), sh.delay, strconv.FormatInt(delayed, 10)+" late")
	expireAll(t, s, "all of them are found", func() bool { return testutil.ToFloat64(s.metrics.repaired) == 5 })
	c := &Claim{Namespace: s.Namespace("mail"), Queues: []string{"q", "gone", "late"}, TTR: time.Minute, Count: 20}
	runOne(s, s.NewLane(), &Batch{Claims: []*Claim{c}}, most)
	if c.Err != nil || len(c.Jobs) != 9 {
		t.Errorf("got %v and %d jobs, want 9", c.Err, len(c.Jobs))
	}
	if got, want := ledgerOf(t, s), (Ledger{Published: 9, Leased: 9}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestJobsThatSomethingElseRemovedAreLost(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	client, sh := redistest.SharedClient(t), s.Namespace("mail").shardAt(0)
	store1(t, s, "q", 5, 0, 0)
	store1(t, s, "r", 2, 0, 0)
	client.Del(t.Context(), sh.jobs("q"))
	for _, queue := range []string{"q", "r"} {
		c := &Claim{Namespace: s.Namespace("mail"), Queues: []string{queue}, TTR: time.Minute, Count: 20}
		runOne(s, s.NewLane(), &Batch{Claims: []*Claim{c}}, most)
		if c.Err != nil {
			t.Fatal(c.Err)
		}
	}
	if got, want := ledgerOf(t, s), (Ledger{Published: 7, Lost: 5, Leased: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAForeignTypeIsAnErrorOfItsQueueAlone(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	client, ns := redistest.SharedClient(t), s.Namespace("mail")
	store1(t, s, "good", 1, 0, 0)
	client.Set(t.Context(), ns.shardAt(0).ready("bad"), "x", 0)
	client.Set(t.Context(), ns.shardAt(0).jobs("worse"), "x", 0)
	var b Batch
	for _, q := range []string{"bad", "worse", "good"} {
		b.Publishes = append(b.Publishes, &Publish{Namespace: ns, Queue: q, Tries: 1, Messages: payload("x")})
		b.Claims = append(b.Claims, &Claim{Namespace: ns, Queues: []string{q}, TTR: time.Minute, Count: 9})
		b.Acks = append(b.Acks, &Ack{Namespace: ns, Queue: q, Ref: Ref{Seq: 1}})
	}
	runOne(s, s.NewLane(), &b, most)
	if !errors.Is(b.Publishes[0].Err, errForeign) || !errors.Is(b.Claims[0].Err, errForeign) {
		t.Errorf("bad: publish %v, claim %v", b.Publishes[0].Err, b.Claims[0].Err)
	}
	if !errors.Is(b.Publishes[1].Err, errForeign) || !errors.Is(b.Acks[1].Err, errForeign) {
		t.Errorf("worse: publish %v, ack %v", b.Publishes[1].Err, b.Acks[1].Err)
	}
	if b.Publishes[2].Err != nil || len(b.Claims[2].Jobs) != 2 || b.Acks[2].Err != nil {
		t.Errorf("publish %v, claim %v %d, ack %v", b.Publishes[2].Err, b.Claims[2].Err, len(b.Claims[2].Jobs), b.Acks[2].Err)
	}
}

func TestAWalkReadsTheNamesOfQueuesInPages(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openAt(t, server.URL(), "sw", true, nil)
	store1(t, s, "q", 1, 0, 0)
	client, names := server.Client(), make([]redis.Z, 2499)
	for i := range names {
		names[i] = redis.Z{Score: 9e12, Member: strconv.Itoa(i)}
	}
	client.ZAdd(t.Context(), s.Namespace("mail").shardAt(0).queues, names...)
	client.ConfigResetStat(t.Context())
	e := NewExpirer(s)
	e.plan(t.Context())
	if stats := client.Info(t.Context(), "commandstats").Val(); len(e.walks) != 2500 || !strings.Contains(stats, "cmdstat_zrange:calls=4,") {
		t.Errorf("%d walks, want 2500, of 3 pages, and one of kept jobs: %s", len(e.walks), stats)
	}
}

func TestARollbackIsCounted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openAt(t, server.URL(), "sw", true, func(p *Policy) { p.Shards = 2 })
	store1(t, s, "a", 3, 0, 0)
	store1(t, s, "b", 4, 0, 0)
	s.space.CheckRollback(t.Context(), s.homes())
	store1(t, s, "a", 2, 0, 0)
	s.space.CheckRollback(t.Context(), s.homes())
	if n := testutil.ToFloat64(s.metrics.rolledBack); n != 0 {
		t.Fatalf("%v jobs rolled back before anything was", n)
	}
	store1(t, s, "b", 1, 0, 0)
	server.Client().FlushAll(t.Context())
	s.space.CheckRollback(t.Context(), s.homes())
	if n := testutil.ToFloat64(s.metrics.rolledBack); n != 10 {
		t.Errorf("%v jobs rolled back, want 10", n)
	}
}

// An audit of a long queue takes hours. Meanwhile hidden jobs expire as ever.
func TestAnAuditHoldsUpNoWalk(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	ns := s.Namespace("mail")
	store1(t, s, "q", 1, 0, 0)
	store1(t, s, "q", 5, 0, time.Millisecond)
	e := NewExpirer(s)
	for range 100_000 { // as many steps as a long queue needs
		e.audits = append(e.audits, walk{place: place{ns, ns.shardAt(0)}, queue: "long", cursor: "0", audit: true})
	}
	redistest.Until(t, most, "they expire", func() bool {
		e.began = time.Time{}
		e.round(t.Context())
		return ledgerOf(t, s).Expired == 5
	})
	if len(e.audits) == 0 {
		t.Error("the audit is over, so this tests nothing")
	}
}

func TestPreparedJobsAreNotMissingOfAnAudit(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	store1(t, s, "q", 1, 0, 0)
	store1(t, s, "q", 1, time.Hour, 0)
	ns := s.Namespace("mail")
	p := &Publish{Namespace: ns, Queue: "q", Tries: 2, Messages: payload("x"), Prepare: &Prepare{After: time.Hour}}
	runOne(s, s.NewLane(), &Batch{Publishes: []*Publish{p}}, most)
	missing, err := s.missingReferences(t.Context(), NewExpirer(s).pace, ns.shardAt(0), []string{"q"})
	if p.Err != nil || missing != 0 || err != nil {
		t.Errorf("%d are missing, %v, %v", missing, p.Err, err)
	}
}

func TestTheExpirerForgetsNamespacesThatAreGone(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	store1(t, s, "q", 1, 0, 0)
	e := NewExpirer(s)
	e.plan(t.Context())
	if len(e.audited) != 1 {
		t.Fatalf("it remembers %d shards, want 1", len(e.audited))
	}
	if err := s.swap(nil); err != nil {
		t.Fatal(err)
	}
	if e.plan(t.Context()); len(e.audited)+len(e.missing) != 0 {
		t.Errorf("it remembers %d shards of no namespace", len(e.audited)+len(e.missing))
	}
}

// The janitor needs no rule: it may be gone.
func TestKeptJobsAreForgottenWhenTheirTimeIsOver(t *testing.T) {
	t.Parallel()
	server := redistest.StartWithClock(t)
	s := openStore(t, server.URL(), func(p *Policy) {
		p.Rules = []Rule{{Match: "q*", KeepAcked: Span(time.Hour)}}
	})
	ns, l := s.Namespace("mail"), s.NewLane()
	for _, queue := range []string{"q1", "q2"} {
		store1(t, s, queue, 700, 0, 0)
		for range 3 {
			c := &Claim{Namespace: ns, Queues: []string{queue}, TTR: time.Hour, Count: 250}
			s.Run(t.Context(), l, &Batch{Claims: []*Claim{c}})
			var b Batch
			for i := range c.Jobs {
				b.Acks = append(b.Acks, &Ack{Namespace: ns, Queue: queue, Ref: c.Jobs[i].Ref, Result: []byte("1")})
			}
			s.Run(t.Context(), l, &b)
		}
	}
	if ledger, err := s.Ledger(t.Context(), ns); err != nil || ledger.Acked != 1400 || ledger.Kept < 1 {
		t.Fatalf("%+v, %v", ledger, err)
	}
	server.Advance(time.Hour)
	e := NewExpirer(s)
	redistest.Until(t, most, "they are forgotten", func() bool {
		e.began, e.walked = time.Time{}, map[*shard]time.Time{}
		e.round(t.Context())
		ledger, err := s.Ledger(t.Context(), ns)
		return err == nil && ledger.Kept == 0
	})
	sh := ns.shardAt(0)
	for _, key := range []string{sh.kept, sh.until("q1"), sh.acked("q1"), sh.until("q2"), sh.acked("q2")} {
		if n, err := s.backend.Background.Exists(t.Context(), key).Result(); n != 0 || err != nil {
			t.Errorf("%s is left: %v", key, err)
		}
	}
}
