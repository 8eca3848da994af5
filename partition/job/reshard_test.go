package job

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

func reshardTo(t *testing.T, s *Store, shards int) {
	t.Helper()
	if _, err := s.Reshard(t.Context(), s.Namespace("mail"), partition.ReshardRequest{Shards: shards}); err != nil {
		t.Fatal(err)
	}
}

// publishTo publishes one job, and claimIn claims one in the shard of that place among Shards.
func publishTo(t *testing.T, s *Store, queue, text string, edit func(*Publish)) *Publish {
	t.Helper()
	ns := s.Namespace("mail")
	p := &Publish{Namespace: ns, Queue: queue, Tries: 3, Messages: payload(text)}
	if edit != nil {
		edit(p)
	}
	p.Shard = ns.HomeOf(p, 0)
	s.Run(t.Context(), s.NewLane(), &Batch{Publishes: []*Publish{p}})
	return p
}

func claimIn(t *testing.T, s *Store, queue string, place int) *Claim {
	t.Helper()
	ns := s.Namespace("mail")
	c := &Claim{Namespace: ns, Queues: []string{queue}, TTR: time.Hour, Count: 1, Shard: ns.Shards(queue)[place]}
	s.Run(t.Context(), s.NewLane(), &Batch{Claims: []*Claim{c}})
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	return c
}

func ackOf(t *testing.T, s *Store, j Job) {
	t.Helper()
	a := &Ack{Namespace: s.Namespace("mail"), Queue: j.Queue, Ref: j.Ref}
	s.Run(t.Context(), s.NewLane(), &Batch{Acks: []*Ack{a}})
	if a.Err != nil || !a.Acked {
		t.Fatalf("ack of %s: %v, %v", j.ID, a.Acked, a.Err)
	}
}

// closeLayouts does what the expirer does each second.
func closeLayouts(t *testing.T, s *Store) (older int) {
	t.Helper()
	ns := s.Namespace("mail")
	s.lookAtOlder(t.Context(), ns)
	s.tidyLayouts(t.Context(), ns)
	layouts := ns.Layouts()
	return len(layouts.Older(layouts.Current().N))
}

func TestTwoOlderLayoutsAreEmptiedInOrderAndHoldAsMuchAsWasPromised(t *testing.T) {
	t.Parallel()
	const most = 4
	s := openStore(t, "redis://"+redistest.Shared(t), func(p *Policy) { p.MaxJobs = most })
	stored := 0
	for _, shards := range []int{1, 2, 1} {
		if shards != s.Namespace("mail").NewestShards() {
			reshardTo(t, s, shards)
		}
		// Each layout has room for what the namespace may have by itself, or a shard its part of that.
		for i := range most / shards {
			if p := publishTo(t, s, "q", fmt.Sprint(stored), nil); p.Err != nil {
				t.Fatalf("job %d of %d shards: %v", i, shards, p.Err)
			}
			stored++
		}
		if p := publishTo(t, s, "q", "full", nil); !errors.Is(p.Err, ErrTooManyJobs) {
			t.Errorf("%d shards: %v", shards, p.Err)
		}
	}
	if n := closeLayouts(t, s); n != 2 {
		t.Fatalf("%d older layouts", n)
	}
	infos, err := s.Layouts(t.Context(), s.Namespace("mail"))
	if err != nil || len(infos) != 3 || infos[0].Entries != 4 || infos[1].Entries != 2 || infos[2].Entries != 4 || infos[1].Fenced != 2 ||
		infos[1].Empty != 1 || !slices.Equal(infos[1].Names, []string{"q"}) || infos[2].Names != nil {
		t.Errorf("got %+v, %v", infos, err)
	}
	if c := claimIn(t, s, "q", 2); !c.Older || len(c.Jobs) > 0 {
		t.Errorf("the newest goes before the older ones: %+v", c)
	}
	for i := range stored {
		place := 0
		var c *Claim
		for ; place < len(s.Namespace("mail").Shards("q")); place++ {
			if c = claimIn(t, s, "q", place); len(c.Jobs) > 0 {
				break
			}
		}
		if len(c.Jobs) != 1 || string(c.Jobs[0].Payload) != fmt.Sprint(i) {
			t.Fatalf("job %d: got %+v", i, c)
		}
		ackOf(t, s, c.Jobs[0])
	}
	if n := closeLayouts(t, s); n != 0 {
		t.Errorf("%d older layouts are open though empty", n)
	}
	if l := ledgerOf(t, s); l.Published != int64(stored) || l.Acked != int64(stored) || l.Ready != 0 {
		t.Errorf("got %+v", l)
	}
}

func TestADelayedJobKeepsItsLayoutOpenUntilItEnds(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	late := publishTo(t, s, "q", "late", func(p *Publish) { p.Delay = time.Hour })
	reshardTo(t, s, 3)
	if p := publishTo(t, s, "q", "new", nil); late.Err != nil || p.Err != nil || p.Shard == late.Shard {
		t.Fatalf("%v, %v, both in shard %d", late.Err, p.Err, p.Shard)
	}
	for range 2 {
		if n := closeLayouts(t, s); n != 1 {
			t.Fatalf("%d older layouts beside a delayed job", n)
		}
	}
	if c := claimIn(t, s, "q", 1); len(c.Jobs) != 1 || string(c.Jobs[0].Payload) != "new" {
		t.Errorf("a delayed job holds up what is ready: %+v", c)
	}
	ns := s.Namespace("mail")
	r := &Reschedule{Namespace: ns, Queue: "q", Ref: Ref{Shard: late.Shard, Seq: late.First}, Delay: new(time.Duration)}
	if err := s.Reschedule(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	redistest.Until(t, 10*time.Second, "the job is due", func() bool {
		NewPromoter(s).look(context.Background(), []place{{ns, ns.shard(late.Shard)}})
		c := claimIn(t, s, "q", 0)
		for _, j := range c.Jobs {
			ackOf(t, s, j)
		}
		return len(c.Jobs) == 1
	})
	if n := closeLayouts(t, s); n != 0 {
		t.Errorf("%d older layouts", n)
	}
}

func TestSchedulesOwnersAndRatesKeepTheirShards(t *testing.T) {
	t.Parallel()
	c := redistest.SharedClient(t)
	for what, row := range map[string]struct {
		edit func(*Policy)
		put  func(*Store, *Namespace) error
		want string
	}{
		"a schedule": {nil, func(s *Store, ns *Namespace) error {
			return s.PutSchedule(t.Context(), &PutSchedule{Namespace: ns, Queue: "reports", Name: "nightly", Tag: "x"})
		}, "schedule nightly of queue reports"},
		"an owner": {nil, func(s *Store, ns *Namespace) error {
			_, err := s.Register(t.Context(), ns, "billing", 1, time.Hour)
			return err
		}, "billing owns schedules"},
		"a rate": {func(p *Policy) {
			p.Rules = []Rule{{Match: "slow", Rate: RateLimit{Rate: partition.Rate{Count: 5, Per: time.Second}}}}
		}, nil, "the rule for queue slow has a rate"},
		"a kept job": {nil, func(_ *Store, ns *Namespace) error {
			return c.HSet(t.Context(), ns.shard(0).Ledger, "kept", 2).Err()
		}, "2 acked jobs are kept"},
		"a limit": {func(p *Policy) { p.Rules = []Rule{{Match: "slow", Concurrency: 5}} }, nil, "the rule for queue slow has a concurrency"},
	} {
		s := openStore(t, "redis://"+redistest.Shared(t), row.edit)
		ns := s.Namespace("mail")
		publishOne(t, s, "q")
		if row.put != nil {
			if err := row.put(s, ns); err != nil {
				t.Fatal(what, err)
			}
		}
		ledger := ns.shard(0).Ledger
		before := fmt.Sprint(c.HGetAll(t.Context(), ledger).Val())
		for _, dry := range []bool{true, false} {
			_, err := s.Reshard(t.Context(), ns, partition.ReshardRequest{Shards: 3, DryRun: dry})
			if !errors.Is(err, space.ErrNoLayouts) || !errors.Is(err, backend.ErrIncompatible) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: got %v", what, err)
			}
		}
		if after := fmt.Sprint(c.HGetAll(t.Context(), ledger).Val()); after != before {
			t.Errorf("%s: got %s, want %s", what, after, before)
		}
		if n := c.Exists(t.Context(), s.prefix+":{mail}:layout").Val(); n != 0 || ns.NewestShards() != 1 {
			t.Errorf("%s: a record was written", what)
		}
	}
}

// The file only makes them more: who has fewer in it follows those that are there.
func TestAFileWithMoreShardsHasThemMade(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Shared(t)
	small, large := openAt(t, url, "grow", true, nil), openAt(t, url, "grow", true, func(p *Policy) { p.Shards = 3 })
	publishOne(t, small, "q")
	if _, err := large.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{small, large} {
		e := NewExpirer(s)
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Stop(context.Background()) })
	}
	for _, s := range []*Store{small, large} {
		redistest.Until(t, 30*time.Second, "all have three shards", func() bool { return s.Namespace("mail").NewestShards() == 3 })
	}
	ackOf(t, small, claimIn(t, small, "q", 0).Jobs[0])
	redistest.Until(t, 30*time.Second, "the older layout closes", func() bool {
		layouts := large.Namespace("mail").Layouts()
		return len(layouts.Older(layouts.Current().N)) == 0
	})
}

// What a process plans before the store says of how many shards the namespace is must do no harm: with a
// file that names more, a restart would otherwise publish where nobody claims, or end the process.
func TestWhatWasPlannedForTheShardsOfTheFileFindsThoseOfTheStore(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Shared(t)
	publishOne(t, openAt(t, url, "planned", true, nil), "first")
	s := openAt(t, url, "planned", true, func(p *Policy) { p.Shards = 1024 })
	ns := s.Namespace("mail")
	planned := ns.Shards("q")[0]
	if planned == 0 {
		t.Fatal("the queue is in the only shard anyway")
	}
	w := NewWakes(s, func(WakeEvent) {})
	w.Want(ns, planned, "q")
	p := &Publish{Namespace: ns, Queue: "q", Shard: planned, Tries: 1, Messages: payload("x")}
	c := &Claim{Namespace: ns, Queues: []string{"q"}, Shard: planned, TTR: time.Hour, Count: 1}
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Run(t.Context(), s.NewLane(), &Batch{Publishes: []*Publish{p}, Claims: []*Claim{c}})
	if p.Err != nil || p.Shard != 0 || !errors.Is(c.Err, backend.ErrUnavailable) {
		t.Errorf("published in shard %d, %v; claimed: %v", p.Shard, p.Err, c.Err)
	}
	if c := claimIn(t, s, "q", 0); len(c.Jobs) != 1 {
		t.Errorf("got %+v", c)
	}
	w.Want(ns, planned, "q")
	w.Unwant(ns, planned, "q")
	if len(w.resting) != 1 || w.resting[0].wants != 0 {
		t.Error("its subscription stays for ever")
	}
}

func TestThePromoterLooksIntoNewShardsAtOnce(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	publishOne(t, s, "q")
	select {
	case <-s.alarm.wake:
	default:
	}
	s.alarm.until.Store(math.MaxInt64)
	reshardTo(t, s, 3)
	select {
	case <-s.alarm.wake:
	default:
		t.Error("it sleeps until something is due in the shards before")
	}
}

func TestIDsOfUnknownShardsAreLookedUpTogether(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	publishOne(t, s, "q")
	var asked atomic.Int64
	s.backend.Observe(func(command string, _ time.Duration, _ bool) {
		if command == "hgetall" {
			asked.Add(1)
		}
	})
	var b Batch
	for i := range 50 {
		b.Acks = append(b.Acks, &Ack{Namespace: s.Namespace("mail"), Queue: "q", Ref: Ref{Shard: 100 + i, Seq: 1}})
	}
	s.Run(t.Context(), s.NewLane(), &b)
	for _, a := range b.Acks {
		if a.Err != nil || a.Acked {
			t.Errorf("%+v: %v, %v", a.Ref, a.Acked, a.Err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the record was read %d times", n)
	}
}

// A layout that a job for tomorrow keeps open costs Redis a look each second and shard.
func TestAnOpenLayoutCostsALookASecond(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	s := openStore(t, server.URL(), nil)
	late := publishTo(t, s, "q", "late", func(p *Publish) { p.Delay = 24 * time.Hour })
	if late.Err != nil {
		t.Fatal(late.Err)
	}
	for _, c := range []interface {
		Start(context.Context) error
		Stop(context.Context) error
	}{NewPromoter(s), NewExpirer(s), NewMover(s)} {
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Stop(context.Background()) })
	}
	calls := func() float64 {
		count := func() (n float64) {
			for line := range strings.Lines(client.Info(t.Context(), "commandstats").Val()) {
				if _, text, found := strings.Cut(line, "calls="); found && !strings.HasPrefix(line, "cmdstat_info") {
					calls, _, _ := strings.Cut(text, ",")
					v, _ := strconv.ParseFloat(calls, 64)
					n += v
				}
			}
			return n
		}
		began, before := time.Now(), count()
		looked := s.Namespace("mail").shard(late.Shard).looked.Load()
		redistest.Until(t, 30*time.Second, "it is looked at", func() bool {
			return s.Namespace("mail").shard(late.Shard).looked.Load() >= looked+3000
		})
		return (count() - before) / time.Since(began).Seconds()
	}
	alone := calls()
	reshardTo(t, s, 2)
	with := calls()
	t.Logf("%.0f commands a second, and %.0f beside two new shards", alone, with) // 15 and 47
	if with-alone > 50 {
		t.Error("they are too many")
	}
}
