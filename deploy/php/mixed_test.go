//go:build php

package php

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
	store "github.com/spillway-io/spillway/partition/php"
)

var (
	mixedRuns = flag.Int("runs", 1, "runs of each flavor beside its library's workers")
	mixedJobs = flag.Int("jobs", 300, "jobs of a run")
	mixedSeed = flag.Uint64("seed", 1, "seed of the first run")
)

// mixed is one run: two of the library's workers and two claimers of ours share a queue, and each is
// killed now and then with what it has in hand.
type mixed struct {
	*project
	t            testing.TB
	store        *store.Store
	ns           *job.Namespace
	rand         *rand.Rand
	jobs, pushed int           // at a time, and in all
	lease        time.Duration // of ours

	mu            sync.Mutex
	acked         map[string]int // by the digest of the data
	kills, leaves int            // of PHP's workers; of jobs that ours left
}

// Nothing is lost by us, and nothing runs twice: what a claimer of ours or a worker of Laravel had in
// hand comes again after its lease. What think-queue's workers lose between LPOP and ZADD is theirs, one
// job a kill at most, and then our account is exact all the same.
func TestOursAndTheLibrarysWorkersShareAQueueThroughKills(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		for run := range *mixedRuns {
			m := newMixed(t, p, *mixedSeed+uint64(run)) // #nosec G115 -- a small number
			m.run()
			m.judge(run)
			must(t, p.redis.Del(context.Background(), append(p.keys(), p.key)...).Err())
			must(t, os.RemoveAll(filepath.Join(p.dir, "seen")))
		}
	}, think3, think2, laravel)
}

func newMixed(t testing.TB, p *project, seed uint64) *mixed {
	t.Helper()
	b, err := backend.Open(backend.Config{URL: "redis://" + p.redis.Options().Addr}, prometheus.NewRegistry(), zap.NewNop())
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	policy := store.DefaultPolicy(store.Flavor(p.app))
	policy.KeyPrefix = p.prefix()
	policy.Rules = []job.Rule{{Match: job.Pattern(p.queue)}}
	policy.Tries = 0
	s, err := store.Open(store.Config{Prefix: "sw", Namespaces: map[string]store.Policy{"shop": policy}}, b, prometheus.NewRegistry(), zap.NewNop())
	must(t, err)
	_, err = s.Check(context.Background())
	must(t, err)
	return &mixed{project: p, t: t, store: s, ns: s.Namespace("shop"), rand: rand.New(rand.NewPCG(seed, 0)), jobs: *mixedJobs, lease: 2 * time.Second,
		acked: map[string]int{}}
}

// run has the consumers do the jobs, and more of them until each side had some: on a busy machine one is
// late.
func (m *mixed) run() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range 2 {
		seed := m.rand.Uint64()
		running.Go(func() { m.claims(ctx, rand.New(rand.NewPCG(seed, 1))) })
		seed = m.rand.Uint64()
		running.Go(func() { m.works(ctx, rand.New(rand.NewPCG(seed, 2))) })
	}
	for byUs := 0; byUs == 0 || m.count(m.t, ran) == 0; {
		var jobs []pushed
		for i := range m.jobs {
			jobs = append(jobs, pushed{Class: "Note", Data: map[string]any{"acts": []string{"delete"}, "n": m.pushed + i}, Delay: i % 10 / 9})
		}
		m.push(m.t, jobs...)
		m.pushed += len(jobs)
		redistest.Until(m.t, 2*time.Minute, "nothing is ready, delayed or leased", func() bool {
			c := context.Background()
			pipe := m.redis.TxPipeline() // at one moment: what is moved between two looks would be seen by neither
			ready, delayed, leases := pipe.LLen(c, m.key), pipe.ZCard(c, m.key+":delayed"), pipe.ZCard(c, "sw:php:"+m.key+":leases")
			_, err := pipe.Exec(c)
			return err == nil && ready.Val()+delayed.Val()+leases.Val() == 0
		})
		m.mu.Lock()
		byUs = len(m.acked)
		m.mu.Unlock()
	}
	stop()
	running.Wait()
}

// claims is a worker of ours: it acks what it claims, or leaves it as one that was killed.
func (m *mixed) claims(ctx context.Context, random *rand.Rand) {
	lane := m.store.NewLane()
	for ctx.Err() == nil {
		c := &job.Claim{Namespace: m.ns, Queues: []string{m.queue}, TTR: m.lease, Count: 1 + random.IntN(4)}
		m.store.Run(context.Background(), lane, &job.Batch{Claims: []*job.Claim{c}})
		if c.Err != nil {
			m.t.Errorf("claim: %v", c.Err)
			return
		}
		if random.IntN(40) == 0 {
			m.mu.Lock()
			m.leaves += len(c.Jobs)
			m.mu.Unlock()
			lane = m.store.NewLane()
			continue
		}
		time.Sleep(time.Duration(random.IntN(8)) * time.Millisecond) // the work
		for i := range c.Jobs {
			a := &job.Ack{Namespace: m.ns, Queue: m.queue, Ref: c.Jobs[i].Ref}
			m.store.Run(context.Background(), lane, &job.Batch{Acks: []*job.Ack{a}})
			m.mu.Lock()
			if a.Err != nil || !a.Acked {
				m.t.Errorf("the lease ran, and its ack found nothing: %v", a.Err)
			}
			m.acked[digest([]byte(gjson.GetBytes(c.Jobs[i].Payload, "data").Raw))]++
			m.mu.Unlock()
		}
	}
}

// works keeps a worker of the library, which is killed now and then.
func (m *mixed) works(ctx context.Context, random *rand.Rand) {
	args := append(append([]string{}, m.worker...), m.queue)
	if m.app == "laravel" { // else it gives up what was handed out before: its default is one try
		args = append(args, "--tries=0")
	}
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, "php", args...)
		cmd.Dir, cmd.Env = m.dir, m.env
		if err := cmd.Start(); err != nil {
			m.t.Error(err)
			return
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(time.Duration(200+random.IntN(1200)) * time.Millisecond):
			_ = cmd.Process.Kill()
			<-ended
		}
		m.mu.Lock()
		m.kills++
		m.mu.Unlock()
	}
}

func digest(data []byte) string {
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}

// judge holds what ran, and what is left in PHP's reservations, against what was pushed.
func (m *mixed) judge(run int) {
	m.t.Helper()
	ran := map[string]int{}
	text, _ := os.ReadFile(filepath.Join(m.dir, "seen"))
	for line := range bytes.Lines(text) {
		var seen struct {
			Ran  *int
			Data string
		}
		if json.Unmarshal(line, &seen) == nil && seen.Ran != nil {
			ran[seen.Data]++
		}
	}
	left := map[string]int{}
	for _, payload := range m.redis.ZRange(context.Background(), m.key+":reserved", 0, -1).Val() {
		left[digest([]byte(gjson.Get(payload, "data").Raw))]++
	}
	missing, twice, both := 0, 0, 0
	for i := range m.pushed {
		d := digest(fmt.Appendf(nil, `{"acts":["delete"],"n":%d}`, i))
		switch n := ran[d] + m.acked[d]; {
		case n > 1:
			twice++
		case n == 0 && left[d] == 0:
			missing++
		}
		if ran[d] > 0 && m.acked[d] > 0 {
			both++
		}
	}
	lost := m.kills
	if m.app == "laravel" {
		lost = 0
	}
	residual, err := m.store.Audit(context.Background(), m.ns)
	m.t.Logf("run %d: %d by us, %d by PHP, %d reserved; %d kills, %d left by ours; missing %d, twice %d, residual %d", run, len(m.acked), len(ran),
		len(left), m.kills, m.leaves, missing, twice, residual)
	if missing > lost || twice > 0 || both > 0 || residual != 0 || err != nil {
		m.t.Errorf("run %d: missing %d, twice %d, by both %d, residual %d, %v", run, missing, twice, both, residual, err)
	}
}
