package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/space"
)

func (p *process) forget(n int64) error {
	_, err := p.store.EndLayout(context.Background(), p.ns, LayoutEnd{N: n})
	return err
}

func (p *process) abandon(n int64, dry bool) (LostLayout, error) {
	return p.store.EndLayout(context.Background(), p.ns, LayoutEnd{N: n, Abandon: true, DryRun: dry})
}

// overview is the account of a process; it also reads all entries.
func (p *process) overview(t *testing.T) Overview {
	t.Helper()
	o, err := p.store.Overview(context.Background(), p.ns)
	if err != nil {
		t.Fatal(err)
	}
	if residual, err := p.store.Audit(context.Background(), p.ns); residual != 0 || err != nil {
		t.Errorf("residual %d, %v", residual, err)
	}
	return o
}

// drain delivers all that can be claimed now.
func (p *process) drain(t *testing.T) (delivered int) {
	t.Helper()
	ctx := context.Background()
	numbers, _ := p.ns.OpenShards()
	for _, n := range numbers {
		due, _, err := p.store.Due(ctx, p.ns, n, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range due {
			for _, c := range p.store.Claim(ctx, []ClaimRequest{{Namespace: p.ns, Partition: d.Partition, MaxBatches: 1, Shard: n}}, time.Minute) {
				if c.Err != nil || c.Lease == nil {
					t.Fatalf("%s: %v", d.Partition, c.Err)
				}
				commit := &Commit{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: len(c.Lease.Entries)}
				if p.store.Commit(ctx, []*Commit{commit}); commit.Err != nil {
					t.Fatal(commit.Err)
				}
				delivered += len(c.Lease.Entries)
			}
		}
	}
	return delivered
}

func (p *process) layout(t *testing.T, n int) LayoutInfo {
	t.Helper()
	list, err := p.store.Layouts(context.Background(), p.ns)
	if err != nil {
		t.Fatal(err)
	}
	return list[n]
}

func TestForgottenLayoutsAreInTheAccount(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	three := others(t, server.URL(), 3, 2)
	p, q, frozen := three[0], three[1], three[2]
	for i := range 20 {
		p.put(t, fmt.Sprint("p", i), "1")
		frozen.put(t, fmt.Sprint("p", i), "2")
	}
	p.reshard(t, 3)
	first := p.layout(t, 0).N
	if err := p.forget(first); !errors.Is(err, ErrLayoutInUse) {
		t.Errorf("of an open layout: got %v", err)
	}
	if err := p.forget(77); !errors.Is(err, ErrNoLayout) {
		t.Errorf("of an unknown layout: got %v", err)
	}
	q.put(t, "p1", "3")
	for range 2 {
		p.drain(t)
	}
	p.tidy()
	q.read()
	before := p.overview(t)
	if !p.layout(t, 0).Closed || before.Shards.Closed != 2 || before.Ledger.Delivered != 41 {
		t.Fatalf("got %+v", before)
	}
	letters := server.Client().LPush(ctx, "sw:{kart.1}:dead", "{}")
	if err := p.forget(first); letters.Err() != nil || !errors.Is(err, ErrLayoutInUse) {
		t.Errorf("with a dead letter: got %v, %v", err, letters.Err())
	}
	server.Client().Del(ctx, "sw:{kart.1}:dead")
	for range 2 { // a second time changes nothing
		if err := p.forget(first); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []*process{p, q} { // q has not learned of it
		if after := other.overview(t); after.Ledger != before.Ledger {
			t.Errorf("%s: got %+v, want %+v", other.name, after.Ledger, before.Ledger)
		}
	}
	q.read()
	frozen.put(t, "p1", "4") // the ledger of the forgotten layout rejects it first
	ledger := server.Client().HGetAll(ctx, "sw:{kart.0}:ledger").Val()
	if ledger["closed"] != "1" || ledger["accepted"] == "" {
		t.Errorf("the fence is gone: %v", ledger)
	}
	server.Client().Del(ctx, "sw:{kart.0}:ledger", "sw:{kart.1}:ledger")
	want := before.Ledger
	want.Accepted, want.Buffered = want.Accepted+1, want.Buffered+1
	for _, other := range []*process{p, q, others(t, server.URL(), 1, 2)[0]} {
		if after := other.overview(t); after.Ledger != want || after.Shards.Closed != 0 {
			t.Errorf("%s: got %+v, want %+v", other.name, after, want)
		}
	}
	if l := p.layout(t, 0); !l.Forgotten || !l.Closed || l.Abandoned {
		t.Errorf("got %+v", l)
	}
}

func TestALayoutWhoseLedgerDoesNotAddUpIsAbandoned(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, off := range []int64{3, -2} {
		server := redistest.Start(t)
		p := others(t, server.URL(), 1, 1)[0]
		p.put(t, "p", "1")
		if err := p.store.Pause(ctx, p.ns, "p", Pause{By: "alice"}); err != nil {
			t.Fatal(err)
		}
		p.reshard(t, 2)
		list, _ := p.store.Layouts(ctx, p.ns)
		if _, err := p.abandon(list[1].N, false); !errors.Is(err, ErrLayoutInUse) {
			t.Errorf("of the newest layout: got %v", err)
		}
		for _, dry := range []bool{true, false} {
			if _, err := p.abandon(1, dry); !errors.Is(err, ErrLayoutInUse) {
				t.Errorf("with an entry that can be delivered: got %v", err)
			}
		}
		server.Client().Del(ctx, "sw:{kart.0}:q:p", "sw:{kart.0}:m:p", "sw:{kart.0}:ready")
		server.Client().HIncrBy(ctx, "sw:{kart.0}:ledger", "accepted", off-1)
		p.tidy()
		if p.layout(t, 0).Closed {
			t.Fatal("closed although its ledger does not add up")
		}
		for _, dry := range []bool{true, false} {
			lost, err := p.abandon(1, dry)
			if want := (LostLayout{Shards: 1, Entries: max(0, off)}); lost != want || err != nil {
				t.Errorf("dry %v: got %+v, %v, want %+v", dry, lost, err, want)
			}
		}
		o := p.overview(t)
		if want := (Ledger{Accepted: max(0, off), Lost: max(0, off)}); o.Ledger != want || o.PausedPartitions != 1 {
			t.Errorf("got %+v, want %+v", o, want)
		}
		if l := p.layout(t, 0); !l.Closed || !l.Abandoned || l.Forgotten {
			t.Errorf("got %+v", l)
		}
		if err := p.forget(1); err != nil || !p.layout(t, 0).Forgotten {
			t.Errorf("forget: got %v", err)
		}
	}
}

// The lost server comes back, beside a process that was frozen before the shards changed.
func TestALayoutOnALostServerIsAbandoned(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cluster := redistest.StartMasters(t, 3)
	two := others(t, cluster.URL(), 2, 6)
	p, frozen := two[0], two[1]
	lost := 1 // MasterOf asks the first one
	if cluster.MasterOf("sw:{kart}:layout") == lost {
		lost = 2
	}
	var there []string
	for _, name := range p.namesIn() {
		p.put(t, name, "1")
		frozen.put(t, name, "2")
		if cluster.MasterOf(p.ns.shardOf(name).Ledger) == lost {
			there = append(there, name)
		}
	}
	before := p.overview(t)
	n := int64(2 * len(there))
	if n == 0 {
		t.Fatal("no shard lies on that master")
	}
	p.reshard(t, 3)
	server := cluster.Masters[lost]
	server.Signal(syscall.SIGSTOP)
	redistest.Until(t, 30*time.Second, "the other shards are empty", func() bool {
		for _, sh := range p.ns.openShards() {
			if cluster.MasterOf(sh.Ledger) == lost {
				continue
			}
			due, _, err := p.store.Due(ctx, p.ns, sh.Number, 0, 100)
			for _, d := range due {
				for _, c := range p.store.Claim(ctx, []ClaimRequest{{Namespace: p.ns, Partition: d.Partition, MaxBatches: 1, Shard: sh.Number}}, time.Minute) {
					if c.Lease != nil {
						p.store.Commit(ctx, []*Commit{{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: len(c.Lease.Entries)}})
					}
				}
			}
			if err != nil || p.store.backend.Background.ZCard(ctx, sh.ready).Val() > 0 {
				return false
			}
		}
		return true
	})
	want := LostLayout{Shards: 6, Away: len(there), Entries: n}
	for _, dry := range []bool{true, false} {
		if got, err := p.abandon(1, dry); got != want || err != nil {
			t.Fatalf("dry %v: got %+v, %v, want %+v", dry, got, err, want)
		}
	}
	layouts, stillAway := p.ns.home.Layouts(), 0
	for _, at := range layouts.Current().Shards {
		if cluster.MasterOf(at.Ledger) == lost {
			stillAway++
		}
	}
	metrics, err := p.registry.Gather()
	for _, m := range metrics {
		if m.GetName() == "spillway_store_unreachable_shards" && m.GetMetric()[0].GetGauge().GetValue() > float64(stillAway) {
			t.Errorf("what was given up counts as unreachable: %v, %v", m, err)
		}
	}
	moved := ""
	for i := 0; moved == ""; i++ {
		name := fmt.Sprint("moved", i)
		if cluster.MasterOf(layouts.All[0].Of(name).Ledger) == lost && cluster.MasterOf(layouts.Current().Of(name).Ledger) != lost {
			moved = name
		}
	}
	keyed := &Group{Namespace: p.ns, Partition: moved, IdempotencyKey: "k",
		Entries: [][]byte{AppendEntry(nil, time.Now().UnixMilli(), nil, []byte("3"))}}
	if p.store.Produce(ctx, []*Group{keyed}); keyed.Err != nil {
		t.Errorf("with a key, whose former home is away: %v", keyed.Err)
	}
	there = append(there, moved)
	server.Signal(syscall.SIGCONT)
	redistest.Until(t, 30*time.Second, "what came back is fenced", func() bool {
		p.tidy()
		for _, at := range p.ns.home.Layouts().All[0].Shards {
			if !at.Fenced() {
				return false
			}
		}
		return true
	})
	for _, name := range there[:len(there)-1] {
		frozen.put(t, name, "3")
	}
	o := p.overview(t)
	accepted := before.Ledger.Accepted + int64(len(there))
	if l := o.Ledger; l.Accepted != accepted || l.Lost != n || l.Buffered != int64(len(there)) {
		t.Errorf("got %+v, want %d accepted and %d lost", l, accepted, n)
	}
	p.store.revive(ctx, p.ns)
	if got := p.drain(t); got != int(n)+len(there) {
		t.Errorf("delivered %d, want %d that came back and %d new ones", got, n, len(there))
	}
	if l := p.overview(t).Ledger; l.Accepted != accepted || l.Lost != n || l.Buffered != 0 {
		t.Errorf("got %+v, want %d accepted and %d lost", l, accepted, n)
	}
}

// A lostShard is a process on one server of which a shard of the older layout of two does not answer.
type lostShard struct {
	*process
	server *redistest.Server
	sh     *shard
	name   string // of a partition that lies there
}

// loseShard has the keys of the first shard of layout 1 hold foreign values, so whatever asks for
// them gets an error. before runs while they are there still.
func loseShard(t *testing.T, p *process, server *redistest.Server, before func(name string)) *lostShard {
	t.Helper()
	v := &lostShard{p, server, own(p.ns.home.Layouts().Current().Shards[0]), p.namesIn()[0]}
	before(v.name)
	p.reshard(t, 3)
	for _, key := range v.keys() {
		c := server.Client()
		c.Rename(context.Background(), key, "there:"+key) // an error where it has none
		if err := c.Set(context.Background(), key, "foreign", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

func (v *lostShard) keys() []string { return []string{v.sh.Ledger, v.sh.ready, v.sh.dead} }

// back is the shard as after a restart that lost the last second: without its fence.
func (v *lostShard) back(t *testing.T) {
	t.Helper()
	ctx, c := context.Background(), v.server.Client()
	for _, key := range v.keys() {
		c.Del(ctx, key)
		c.Rename(ctx, "there:"+key, key)
	}
	c.HSet(ctx, v.sh.Ledger, "lost", 0, "format", 1)
	if err := c.HDel(ctx, v.sh.Ledger, "fence", "mark", "record", "version", "lost_count", "kind").Err(); err != nil {
		t.Fatal(err)
	}
}

func (v *lostShard) end(r LayoutEnd) (LostLayout, error) {
	r.N = 1
	return v.store.EndLayout(context.Background(), v.ns, r)
}

func (v *lostShard) inUse(t *testing.T, what string, r LayoutEnd) {
	t.Helper()
	if lost, err := v.end(r); !errors.Is(err, ErrLayoutInUse) {
		t.Errorf("%s: got %+v, %v, want %v", what, lost, err, ErrLayoutInUse)
	}
}

// Another process has just begun. No Check of it can pass, and it never read what is lost.
func TestALayoutIsGivenUpAsItWasConfirmed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	two := others(t, server.URL(), 2, 2)
	p, late := two[0], two[1]
	v := loseShard(t, p, server, func(name string) {
		p.put(t, name, "1")
		p.overview(t)
	})
	v.process = late
	if lost, err := v.end(LayoutEnd{Abandon: true, DryRun: true}); err != nil || lost != (LostLayout{Shards: 2, Away: 1, Unseen: 1}) {
		t.Errorf("a process that never read it: got %+v, %v", lost, err)
	}
	v.inUse(t, "a process that never read it", LayoutEnd{Abandon: true})
	v.process = p
	want := LostLayout{Shards: 2, Away: 1, Entries: 1}
	lost, err := v.end(LayoutEnd{Abandon: true, DryRun: true})
	if err != nil || lost != want {
		t.Errorf("got %+v, %v, want %+v", lost, err, want)
	}
	v.inUse(t, "less was confirmed", LayoutEnd{Abandon: true, Confirm: &LostLayout{Shards: 2, Away: 1}})
	for _, what := range []string{"first", "again"} {
		if lost, err := v.end(LayoutEnd{Abandon: true, Confirm: &want}); err != nil || lost != want {
			t.Errorf("%s: got %+v, %v, want %+v", what, lost, err, want)
		}
	}
	late.read()
	for _, q := range two {
		if l := q.overview(t).Ledger; l.Accepted != 1 || l.Lost != 1 {
			t.Errorf("%s: got %+v", q.name, l)
		}
	}
}

func TestWhatNobodyReadIsGivenUpWhereThatIsSaid(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	two := others(t, server.URL(), 2, 2)
	v := loseShard(t, two[0], server, func(name string) { two[0].put(t, name, "1") })
	v.process = two[1]
	want := LostLayout{Shards: 2, Away: 1, Unseen: 1}
	if lost, err := v.end(LayoutEnd{Abandon: true, Unseen: true}); err != nil || lost != want {
		t.Errorf("got %+v, %v, want %+v", lost, err, want)
	}
}

func TestAnAbandonedLayoutIsForgottenOnceItsShardsAreBackAndEmpty(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	p := others(t, server.URL(), 1, 2)[0]
	v := loseShard(t, p, server, func(name string) {
		p.put(t, name, "1")
		p.overview(t)
	})
	v.inUse(t, "an open layout", LayoutEnd{Gone: true})
	if _, err := v.end(LayoutEnd{Abandon: true}); err != nil {
		t.Fatal(err)
	}
	before := p.overview(t).Ledger
	if _, err := v.end(LayoutEnd{}); err == nil {
		t.Error("forgotten while a shard does not answer")
	}
	letters := func() []Letter {
		page, err := p.store.DeadLetters(ctx, p.ns, "", 10)
		if err != nil {
			t.Errorf("dead letters: %v", err)
		}
		return page.Letters
	}
	if got := letters(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
	partitions := func() (n int) {
		for page, more := (Page{}), true; more; more = page != (Page{}) {
			list, next, err := p.store.Partitions(ctx, p.ns, page, 10)
			if err != nil {
				t.Errorf("partitions: %v", err)
			}
			n, page = n+len(list), next
		}
		return n
	}
	p.put(t, "new", "2")
	if n := partitions(); n != 1 {
		t.Errorf("%d partitions while a shard is away", n)
	}

	v.back(t)
	server.Client().RPush(ctx, v.sh.dead, "{}")
	p.tidy()
	p.store.revive(ctx, p.ns)
	if n := partitions(); n != 2 {
		t.Errorf("%d partitions once it is back", n)
	}
	v.inUse(t, "with entries", LayoutEnd{})
	if n := p.drain(t); n != 2 {
		t.Errorf("delivered %d", n)
	}
	v.inUse(t, "with a dead letter", LayoutEnd{})
	got := letters()
	if n, err := p.store.Discard(ctx, p.ns, got); n != 1 || err != nil {
		t.Errorf("discarded %d of %v, %v", n, got, err)
	}
	if lost, err := v.end(LayoutEnd{}); err != nil || lost != (LostLayout{Shards: 2}) || !p.layout(t, 0).Forgotten {
		t.Errorf("got %+v, %v", lost, err)
	}
	before.Accepted, before.Delivered = before.Accepted+1, before.Delivered+1
	if after := p.overview(t).Ledger; after != before {
		t.Errorf("got %+v, want %+v", after, before)
	}
}

// An operator was sure that it never comes back, and it did.
func TestWhatIsForgottenAsGoneIsFencedAndDeliveredAllTheSame(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	two := others(t, server.URL(), 2, 2)
	p, frozen := two[0], two[1]
	v := loseShard(t, p, server, func(name string) {
		p.put(t, name, "1")
		frozen.put(t, name, "2")
		p.overview(t)
	})
	for _, r := range []LayoutEnd{{Abandon: true}, {Gone: true}} {
		if _, err := v.end(r); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
	}
	v.back(t)
	p.tidy()
	frozen.put(t, v.name, "3")
	if n := frozen.ns.Shards(); n != 3 {
		t.Errorf("it stored in a layout of %d shards", n)
	}
	p.store.revive(ctx, p.ns)
	if n := p.drain(t); n != 3 {
		t.Errorf("delivered %d, want 3", n)
	}
}

func TestAPauseOfAShardThatIsBackCanBeLifted(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	p := others(t, server.URL(), 1, 2)[0]
	v := loseShard(t, p, server, func(name string) {
		p.put(t, name, "1")
		if err := p.store.Pause(ctx, p.ns, name, Pause{}); err != nil {
			t.Fatal(err)
		}
		p.overview(t)
	})
	if _, err := v.end(LayoutEnd{Abandon: true}); err != nil {
		t.Fatal(err)
	}
	v.back(t)
	p.tidy()
	p.store.revive(ctx, p.ns)
	if was, err := p.store.Resume(ctx, p.ns, v.name); !was || err != nil {
		t.Errorf("resume: %v, %v", was, err)
	}
	if list, err := p.store.Pauses(ctx, p.ns); len(list) > 0 || err != nil {
		t.Errorf("got %v, %v", list, err)
	}
	if n := p.drain(t); n != 1 {
		t.Errorf("delivered %d", n)
	}
}

func TestAResumedPauseDoesNotComeBackWithTheLayoutThatIsGivenUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	p := others(t, server.URL(), 1, 2)[0]
	v := loseShard(t, p, server, func(name string) {
		p.put(t, name, "1")
		if err := p.store.Pause(ctx, p.ns, name, Pause{}); err != nil {
			t.Fatal(err)
		}
		p.overview(t)
		if was, err := p.store.Resume(ctx, p.ns, name); !was || err != nil {
			t.Fatal(was, err)
		}
	})
	if _, err := v.end(LayoutEnd{Abandon: true}); err != nil {
		t.Fatal(err)
	}
	if list, err := p.store.Pauses(ctx, p.ns); len(list) > 0 || err != nil {
		t.Errorf("got %v, %v", list, err)
	}
}

func TestAKeyStoresOnceAlsoAfterItsLayoutIsGivenUp(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	p := others(t, server.URL(), 1, 1)[0]
	put := func() *Group {
		g := &Group{Namespace: p.ns, Partition: "a", IdempotencyKey: "k",
			Entries: [][]byte{AppendEntry(nil, time.Now().UnixMilli(), nil, []byte("x"))}}
		p.store.Produce(ctx, []*Group{g})
		return g
	}
	put()
	p.reshard(t, 2)
	p.drain(t)
	server.Client().HIncrBy(ctx, "sw:{kart.0}:ledger", "accepted", 1) // so it is never closed
	if _, err := p.abandon(1, false); err != nil {
		t.Fatal(err)
	}
	if g := put(); !g.Repeated || g.Err != nil {
		t.Errorf("repeated %v, %v", g.Repeated, g.Err)
	}
	at := own(p.ns.home.Layouts().All[0].Shards[0])
	server.Client().Set(ctx, at.resultOf(put()), "foreign", time.Minute)
	if g := put(); !errors.Is(g.Err, ErrBroken) {
		t.Errorf("a shard that answers with an error: repeated %v, %v", g.Repeated, g.Err)
	}
}

// Two operators look at the same record, and one is quicker.
func TestAnEndThatWasDecidedByAnOlderRecordIsNotWritten(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	two := others(t, server.URL(), 2, 2)
	p, q := two[0], two[1]
	p.put(t, "a", "1")
	p.reshard(t, 3)
	q.read()
	looked := p.ns.home.Layouts()
	q.drain(t)
	q.tidy()
	p.read() // p learns that it was closed, and has decided already
	err := p.store.space.Amend(ctx, p.ns.home, looked, 1, func(l *space.LayoutRecord) {
		l.Closed, l.Abandoned, l.Sums = 1, 1, map[string]int64{"accepted": 7}
	})
	if !errors.Is(err, ErrResharding) {
		t.Errorf("got %v, want %v", err, ErrResharding)
	}
	for _, other := range two {
		other.read()
		if states := []string{other.layout(t, 0).State(), other.layout(t, 1).State()}; !slices.Equal(states, []string{"closed", "current"}) {
			t.Errorf("%s: got %v", other.name, states)
		}
	}
}

// Its Redis is lost after nothing was left in it.
func TestAClosedLayoutThatIsLostIsAbandoned(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	p := others(t, server.URL(), 1, 2)[0]
	for _, name := range p.namesIn() {
		p.put(t, name, "1")
	}
	if err := p.ns.store.Pause(ctx, p.ns, "p", Pause{}); err != nil {
		t.Fatal(err)
	}
	p.reshard(t, 3)
	p.drain(t)
	redistest.Until(t, 20*time.Second, "the older layout is closed", func() bool {
		p.tidy()
		return len(p.ns.home.Layouts().Open()) == 1
	})
	if _, err := p.ns.store.Resume(ctx, p.ns, "p"); err != nil {
		t.Fatal(err)
	}
	before := p.overview(t).Ledger
	if _, err := p.abandon(1, false); !errors.Is(err, ErrLayoutInUse) {
		t.Errorf("while all its shards answer: %v", err)
	}
	lost := p.ns.home.Layouts().All[0].Shards[1]
	if err := server.Client().Set(ctx, lost.Ledger, "foreign", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.store.EndLayout(ctx, p.ns, LayoutEnd{N: 1}); err == nil {
		t.Error("a layout that does not answer is forgotten")
	}
	if got, err := p.abandon(1, false); err != nil || got != (LostLayout{Shards: 2, Away: 1}) {
		t.Errorf("got %+v, %v", got, err)
	}
	if after := p.overview(t).Ledger; after != before {
		t.Errorf("the account was %+v and is %+v", before, after)
	}
	if pauses, err := p.ns.store.Pauses(ctx, p.ns); err != nil || len(pauses) > 0 {
		t.Errorf("what was resumed is paused again: %v, %v", pauses, err)
	}
	if _, err := p.store.EndLayout(ctx, p.ns, LayoutEnd{N: 1, Gone: true}); err != nil {
		t.Error(err)
	}
}
