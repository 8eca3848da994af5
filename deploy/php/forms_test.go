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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/job"
	store "github.com/spillway-io/spillway/partition/php"
)

// fields are the names of a payload's fields, in their order.
func fields(t *testing.T, payload string) []string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(payload))
	if _, err := dec.Token(); err != nil {
		t.Fatalf("%s: %v", payload, err)
	}
	var names []string
	for dec.More() {
		name, err := dec.Token()
		must(t, err)
		names = append(names, fmt.Sprint(name))
		var skipped json.RawMessage
		must(t, dec.Decode(&skipped))
	}
	return names
}

// Spillway builds payloads of these forms itself, and counts attempts in them.
func TestTheLibraryPushesTheFormOfItsFlavor(t *testing.T) {
	const laravelHead = "uuid displayName job maxTries maxExceptions failOnTimeout backoff timeout "
	forms := map[string]string{
		"think3 Note":     "job maxTries timeout data id attempts",
		"think3 Command":  "job maxTries timeout timeoutAt data id attempts",
		"think2 Note":     "job data id attempts",
		"think2 Command":  "job data id attempts",
		"laravel Note":    laravelHead + "data id attempts",
		"laravel Command": laravelHead + "retryUntil data id attempts",
	}
	// Later versions of Laravel and Horizon have more.
	later := []string{"createdAt", "delay", "type", "tags", "silenced", "pushedAt"}
	onEach(t, func(t *testing.T, p *project) {
		for _, job := range []pushed{note("delete"), command(map[string]any{"tries": 4, "timeout": 9})} {
			p.push(t, job)
			payload, err := p.redis.LPop(context.Background(), p.key).Result()
			must(t, err)
			got := slices.DeleteFunc(fields(t, payload), func(name string) bool { return slices.Contains(later, name) })
			if want := forms[p.app+" "+job.Class]; strings.Join(got, " ") != want {
				t.Errorf("%s has the fields %v, want %s", job.Class, got, want)
			}
			var v struct {
				ID       string
				Attempts json.RawMessage
				MaxTries *int
				Timeout  *int
			}
			must(t, json.Unmarshal([]byte(payload), &v))
			if len(v.ID) != 32 || string(v.Attempts) != fmt.Sprint(p.first) {
				t.Errorf("id and attempts are %q and %s, want 32 bytes and %d", v.ID, v.Attempts, p.first)
			}
			if p.app != "think2" && job.Class == "Command" && (v.MaxTries == nil || *v.MaxTries != 4 || v.Timeout == nil || *v.Timeout != 9) {
				t.Errorf("maxTries and timeout of the object are not those of %s", payload)
			}
		}
	}, think3, think2, laravel)
}

func TestTheLibraryPushesToTheKeysOfItsFlavor(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		ctx := context.Background()
		late := note("delete")
		late.Delay = 100
		began := time.Now().Unix()
		p.push(t, note("delete"), note("delete"), late)
		ready, notified := p.redis.LLen(ctx, p.key).Val(), p.redis.LLen(ctx, p.key+":notify").Val()
		if ready != 2 || notified != int64(2*p.notify) {
			t.Errorf("%d ready and %d notifications, want 2 and %d", ready, notified, 2*p.notify)
		}
		delayed := p.redis.ZRangeWithScores(ctx, p.key+":delayed", 0, -1).Val()
		if len(delayed) != 1 || int64(delayed[0].Score) < began+100 || int64(delayed[0].Score) > time.Now().Unix()+100 {
			t.Errorf("delayed are %v, want one in 100 s", delayed)
		}
	}, think3, think2, laravel)
}

// The payload of 1 MiB has every character that JSON escapes, and numbers that floats do not hold.
func TestTextNumbersAndSizeReachTheJobUnchanged(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		text := "grüße 你 😀 \u2028 \" \\ / \x01" + strings.Repeat("x", 1<<20)
		data := map[string]any{"acts": []string{"delete"}, "text": text, "big": json.Number("9007199254740993"), "most": json.Number("9223372036854775807"),
			"small": -0.5, "empty": map[string]any{}, "list": []int{}}
		p.push(t, pushed{Class: "Note", Data: data})
		d := p.claim(t)
		if !strings.Contains(d.payload, "9223372036854775807") || len(d.payload) < 1<<20 {
			t.Fatal("the library itself pushed something else")
		}
		c := p.start(t, 1)
		if a := c.run(t, d); a.Do != "delete" {
			t.Fatalf("got %+v: %s", a, a.error())
		}
		c.end(t)
		var sent struct{ Data json.RawMessage }
		must(t, json.Unmarshal([]byte(d.payload), &sent))
		for _, s := range slices.DeleteFunc(p.seen(t), func(s seen) bool { return !ran(s) }) {
			if s.Body != sum([]byte(d.payload)) || s.Data != sum(p.asPHP(t, sent.Data)) || s.Queue != p.queue {
				t.Errorf("the job of %s saw %+v, want the payload of %s", p.queue, s, sum([]byte(d.payload)))
			}
		}
	})
}

// asPHP is a JSON text as PHP writes it after it read it.
func (p *project) asPHP(t *testing.T, text []byte) []byte {
	t.Helper()
	cmd := p.php(t, "-r", `echo json_encode(json_decode(stream_get_contents(STDIN), true));`)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	must(t, err)
	return out
}

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
	b := backendtest.Open(t, backend.Config{URL: "redis://" + p.redis.Options().Addr})
	policy := store.DefaultPolicy(store.Flavor(p.app))
	policy.KeyPrefix = p.prefix()
	policy.Rules = []job.Rule{{Match: job.Pattern(p.queue)}}
	policy.Tries = 0
	s, err := store.Open(store.Config{Prefix: "sw", Namespaces: map[string]store.Policy{"shop": policy}}, b, prometheus.NewRegistry(), zap.NewNop())
	must(t, err)
	_, err = s.Check(context.Background())
	must(t, err)
	return &mixed{project: p, t: t, store: s, ns: s.Namespace("shop"), rand: rand.New(rand.NewPCG(seed, 0)), jobs: *mixedJobs, lease: 8 * time.Second,
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
