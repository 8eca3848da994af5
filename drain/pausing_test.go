package drain

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// claimed is how many partitions were claimed, by the outcome.
func (r *rig) claimed(outcome string) int {
	return int(r.value(r.metrics().claims.WithLabelValues(outcome)))
}

// feed produces n entries for each of the named partitions once a second, for so long.
func (r *rig) feed(seconds, n int, names ...string) {
	for range seconds {
		for _, name := range names {
			r.store.produce(r.ns, name, n, 0)
		}
		clocktest.Pass(time.Second)
	}
}

func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

// Many paused partitions came due before 10 healthy ones, and keep being fed: they are
// claimed once, and then at the pace at which their entries go stale.
func TestPausedPartitionsInFrontCostTheOthersNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		calls := map[int]int{}
		many := size(2000, 300)
		for _, paused := range []int{0, many} {
			r := newRig(t, func(p *partition.Policy) { p.Linger = 100 * time.Millisecond })
			r.cfg.Workers = 4
			healthy, stopped := numbered("healthy", 10), numbered("paused", paused)
			for _, name := range stopped {
				r.store.pause(name)
				r.store.produce(r.ns, name, 10, 0)
			}
			clocktest.Pass(time.Second)
			r.start()
			r.feed(1, 1, healthy...)
			if got := r.store.ledger(r.ns).Delivered; got != 10 {
				t.Errorf("behind %d paused partitions %d of 10 entries were delivered within 1 s", paused, got)
			}
			if got := r.claimed(claimPaused); got != paused {
				t.Errorf("%d claims of %d paused partitions", got, paused)
			}
			before := r.store.counts().claim
			r.feed(60, 1, healthy...)
			calls[paused] = r.store.counts().claim - before
			if got := r.claimed(claimPaused); got != paused {
				t.Errorf("%d claims of %d paused partitions after a minute", got, paused)
			}
			if paused > 0 { // their entries go stale all the time
				before := r.claimed(claimPaused)
				for range 240 {
					r.feed(1, 1, append(healthy, stopped...)...)
				}
				// Once in 11.25 s each, a sixteenth of max_age, and each time a batch is complete.
				if got := r.claimed(claimPaused) - before; got < many*60/12 || got > many*(240/11+2) {
					t.Errorf("%d claims of paused partitions in 240 s", got)
				}
				l := r.store.ledger(r.ns)
				if l.Expired < int64(many)*40 || l.Delivered < 10*300 {
					t.Errorf("ledger: %+v", l)
				}
			}
			r.stop()
		}
		if calls[many] > calls[0]+calls[0]/10 {
			t.Errorf("the healthy ones cost %d claim calls a minute beside paused ones, %d without", calls[many], calls[0])
		}
	})
}

func TestAPausedNamespaceCostsOneCallAPollAndShard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(p *partition.Policy) { p.Linger, p.Shards = 100*time.Millisecond, 2 })
		names := append(numbered("p", 20), numbered("pp", 10)...) // of both shards
		r.store.pause("")
		r.start()
		r.feed(10, 10, names...)
		if got := r.value(r.metrics().paused); got != 1 {
			t.Errorf("spillway_drain_paused is %v while it is paused", got)
		}
		before := r.store.counts()
		r.feed(60, 10, names...) // produces wake nobody
		after := r.store.counts()
		if claims, looks := after.claim-before.claim, after.due-before.due; claims < 2*58 || claims > 2*61 || looks != 0 {
			t.Errorf("%d claims and %d Due calls in a minute, want 120 and 0", claims, looks)
		}
		if got := r.store.ledger(r.ns); got != (partition.Ledger{Accepted: 21_000, Buffered: 21_000}) {
			t.Errorf("ledger: %+v", got)
		}

		r.store.resume(r.ns, "")
		clocktest.Pass(2 * time.Second)
		if got := r.value(r.metrics().paused); got != 0 {
			t.Errorf("spillway_drain_paused is %v after it was resumed", got)
		}
		r.drained(10 * time.Second)
		r.stop()
		r.wantLedger(partition.Ledger{Accepted: 21_000, Delivered: 21_000})
		if r.logs.FilterMessageSnippet("delivery paused").Len() != 1 || r.lines("delivery resumed") != 1 {
			t.Errorf("lines: %v", r.logs.All())
		}
	})
}

// Nothing is due when the namespace is resumed: the metric must not stay at 1.
func TestTheEndOfAPauseIsSeenWhereNothingIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.produce(r.ns, "p", 10, 0)
		r.store.pause("")
		r.start()
		clocktest.Pass(5 * time.Second)
		r.store.remove(r.ns, "p", 10)
		clocktest.Pass(5 * time.Second)
		if got := r.value(r.metrics().paused); got != 1 {
			t.Errorf("spillway_drain_paused is %v while it is paused", got)
		}
		r.store.resume(r.ns, "")
		clocktest.Pass(2 * time.Second)
		if got := r.value(r.metrics().paused); got != 0 {
			t.Errorf("spillway_drain_paused is %v after it was resumed", got)
		}
		before := r.store.counts().claim
		clocktest.Pass(10 * time.Second)
		if got := r.store.counts().claim - before; got != 0 {
			t.Errorf("%d claims of nothing", got)
		}
		r.stop()
	})
}

// A pause that comes while Writes run lets them end; what they leave waits.
func TestLeasesInHandFinishWhenThePauseComes(t *testing.T) {
	for what, name := range map[string]string{"the partition": "p", "the namespace": ""} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.cfg.MaxLeaseBatches = 1
				r.store.produce(r.ns, "p", 300, 0)
				failing := false
				r.sink.write = func(context.Context, []*sink.Batch) error {
					r.store.pause(name)
					clocktest.Take(3 * time.Second)
					if failing {
						return errDown
					}
					return nil
				}
				r.start()
				clocktest.Pass(30 * time.Second)
				if got := r.store.ledger(r.ns); got != (partition.Ledger{Accepted: 300, Delivered: 128, Buffered: 172}) {
					t.Errorf("ledger: %+v", got)
				}
				failing = true // it is released, and must not come again either
				r.store.resume(r.ns, name)
				clocktest.Pass(30 * time.Second)
				if got := len(r.sink.seen()); got != 2 {
					t.Errorf("%d writes, want 2", got)
				}
				if got := r.store.counts().claim; got > 64 {
					t.Errorf("%d claims in a minute", got)
				}
				failing = false
				r.sink.write = nil
				r.store.resume(r.ns, name)
				r.drained(10 * time.Second)
				r.stop()
				r.wantLedger(partition.Ledger{Accepted: 300, Delivered: 300})
				r.ordered("p")
			})
		})
	}
}

// A store that fails while the namespace is paused changes nothing about the pause.
func TestAnOutageDuringAPauseIsNoEndOfIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.pause("")
		r.store.produce(r.ns, "p", 10, 0)
		var down fault
		r.store.claimFault = func(partition.ClaimRequest) fault { return down }
		r.start()
		for _, f := range []fault{{}, unavailable, {}, lostReply, {}} {
			r.store.set(func() { down = f })
			clocktest.Pass(10 * time.Second)
			if got := r.value(r.metrics().paused); got != 1 {
				t.Errorf("after %v: spillway_drain_paused is %v", f.err, got)
			}
		}
		r.store.resume(r.ns, "")
		r.drained(10 * time.Second)
		r.stop()
		if r.logs.FilterMessageSnippet("delivery paused").Len() != 1 {
			t.Errorf("lines: %v", r.logs.All())
		}
	})
}

// Another drainer may follow in the same process, and nothing may be due then.
func TestADrainerThatWasStoppedDoesNotCountAsPaused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store.pause("")
		r.store.produce(r.ns, "p", 10, 0)
		r.start()
		clocktest.Pass(5 * time.Second)
		r.stop()
		if got := r.value(r.metrics().paused); got != 0 {
			t.Errorf("spillway_drain_paused is %v after the end", got)
		}
		if got := r.lines("delivery resumed"); got != 0 {
			t.Error("the log says that delivery was resumed")
		}
	})
}

func (p *process) pause(t *testing.T, name string) {
	t.Helper()
	if err := p.store.Pause(t.Context(), p.ns, name, partition.Pause{By: "alice", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
}

func (p *process) resume(t *testing.T, name string) {
	t.Helper()
	if was, err := p.store.Resume(t.Context(), p.ns, name); err != nil || !was {
		t.Fatalf("resume %q: was paused %v (%v)", name, was, err)
	}
}

// until waits for what the ledger says.
func (p *process) until(t *testing.T, what string, ok func(partition.Ledger) bool) {
	t.Helper()
	redistest.Until(t, 30*time.Second, what, func() bool {
		o, err := p.store.Overview(t.Context(), p.ns)
		return err == nil && ok(o.Ledger)
	})
}

// Two partitions are paused, then all of them, while entries come, are evicted and
// expire, Redis is killed and our process restarts. Nothing paused reaches the sink
// until it is resumed, and the ledger is exact to the entry.
func TestPausedEntriesAreAccountedForOverRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	policy := partition.DefaultPolicy()
	policy.Linger, policy.Capacity, policy.MaxAge, policy.Shards = 10*time.Millisecond, 100, 8*time.Second, 2
	cfg := DefaultConfig()
	cfg.SinkTimeout, cfg.Lease, cfg.Poll = 500*time.Millisecond, 2500*time.Millisecond, 50*time.Millisecond
	s := &fakeSink{}
	start := func() (*process, *partition.Janitor) {
		p := startProcess(t, server.URL(), policy, cfg, s)
		j := partition.NewJanitor(p.store)
		if err := j.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.start(t)
		return p, j
	}
	stop := func(p *process, j *partition.Janitor) {
		p.stop(t)
		if err := j.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p, janitor := start()
	p.pause(t, "kart")
	p.pause(t, "ski")
	// What is to expire is as old as it may be, so nobody waits for that.
	p.produce(t, "kart", 20)
	p.produceOld(t, "kart", 30, policy.MaxAge)
	p.produceOld(t, "ski", 50, policy.MaxAge)
	p.produce(t, "run", 50)
	p.until(t, "what is not paused is delivered", func(l partition.Ledger) bool { return l.Delivered == 50 })
	p.produceOld(t, "kart", 70, policy.MaxAge) // evicts the 20 young ones
	p.until(t, "paused entries expire", func(l partition.Ledger) bool {
		return l == partition.Ledger{Accepted: 220, Delivered: 50, Evicted: 20, Expired: 150}
	})

	p.pause(t, "")
	server.Kill()
	server.Launch()
	stop(p, janitor)
	p, janitor = start()
	p.produceOld(t, "run", 60, policy.MaxAge)
	p.produceOld(t, "kart", 60, policy.MaxAge)
	p.until(t, "entries of the paused namespace expire", func(l partition.Ledger) bool {
		return l == partition.Ledger{Accepted: 340, Delivered: 50, Evicted: 20, Expired: 270}
	})
	if got := len(s.of("kart")) + len(s.of("ski")); got != 0 {
		t.Errorf("%d writes of paused partitions", got)
	}
	p.produce(t, "run", 10)
	p.produce(t, "kart", 10)
	p.resume(t, "")
	p.until(t, "what is not paused by itself is delivered", func(l partition.Ledger) bool { return l.Delivered == 60 })
	p.produce(t, "ski", 5)
	p.resume(t, "kart")
	p.resume(t, "ski")
	p.drained(t, 30*time.Second)
	stop(p, janitor)

	l := p.ledger(t)
	if l.Delivered+l.Expired != 50+270+25 || l.Delivered < 65 || l.Accepted != 365 || l.Evicted != 20 {
		t.Errorf("ledger: %+v", l)
	}
	if residual, err := p.store.Audit(t.Context(), p.ns); residual != 0 || err != nil {
		t.Errorf("audit: %d %v", residual, err)
	}
	if s.stale > 0 {
		t.Errorf("%d stale entries were written", s.stale)
	}
}
