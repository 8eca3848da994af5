package drain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

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
	policy.Linger, policy.Capacity, policy.MaxAge, policy.Shards = 10*time.Millisecond, 100, 4*time.Second, 2
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
	for _, name := range []string{"kart", "ski", "run"} {
		p.produce(t, name, 50)
	}
	p.until(t, "what is not paused is delivered", func(l partition.Ledger) bool { return l.Delivered == 50 })
	p.produce(t, "kart", 70) // evicts 20
	p.until(t, "paused entries expire", func(l partition.Ledger) bool {
		return l == partition.Ledger{Accepted: 220, Delivered: 50, Evicted: 20, Expired: 150}
	})

	p.pause(t, "")
	server.Kill()
	server.Launch()
	stop(p, janitor)
	p, janitor = start()
	p.produce(t, "run", 60)
	p.produce(t, "kart", 60)
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

// 1,000 paused partitions stand first in the queue of a real Redis. They cost one claim
// each, 32 a call, and none afterwards.
func TestRedisPausedPartitionsInFront(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	policy := partition.DefaultPolicy()
	policy.Linger = 10 * time.Millisecond
	cfg := DefaultConfig()
	cfg.Poll = 50 * time.Millisecond
	p := startProcess(t, server.URL(), policy, cfg, &fakeSink{})
	if _, err := p.store.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range partition.MaxPauses {
		name := fmt.Sprint("paused", i)
		p.pause(t, name)
		p.produce(t, name, 3)
	}
	evals := func() (n int) {
		if _, rest, ok := strings.Cut(server.Client().Info(t.Context(), "commandstats").Val(), "cmdstat_evalsha:calls="); ok {
			_, _ = fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n)
		}
		return n
	}
	claims := p.d.namespaces[0].metrics.claims.WithLabelValues(claimPaused)
	r := &rig{t: t}
	p.start(t)
	before := evals()
	for i := range 100 { // 10 partitions, one after the other, each entry delivered before the next
		p.produce(t, fmt.Sprint("healthy", i%10), 1)
		p.until(t, "it is delivered", func(l partition.Ledger) bool { return l.Delivered == int64(i+1) })
	}
	// A produce, a claim and a commit each; the paused ones in calls of 32.
	if got, want := evals()-before, 3*100+2*partition.MaxPauses/claimsAtOnce+50; got > want {
		t.Errorf("%d script calls, want %d at most", got, want)
	}
	if got := r.value(claims); got != partition.MaxPauses {
		t.Errorf("%v claims of %d paused partitions", got, partition.MaxPauses)
	}
	p.stop(t)
	if l := p.ledger(t); l != (partition.Ledger{Accepted: 3100, Delivered: 100, Buffered: 3000}) {
		t.Errorf("ledger: %+v", l)
	}
}
