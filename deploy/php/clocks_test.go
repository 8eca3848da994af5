//go:build php

package php

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
)

// skew is how far the clocks of these tests are off, in s.
const skew = 5

// shift has the PHP programs of the project that start from now on run with a clock that is s seconds
// ahead of Redis's. A test is left out where there is no libfaketime, the package faketime of Debian.
func (p *project) shift(t testing.TB, s int) {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	must(t, err)
	if len(found) == 0 {
		t.Skip("left out: there is no libfaketime, which the package faketime has")
	}
	p.env = append(p.env, "LD_PRELOAD="+found[0], fmt.Sprintf("FAKETIME=%+d", s), "FAKETIME_DONT_FAKE_MONOTONIC=1")
	before := time.Now().Unix()
	out, err := p.php(t, "-r", "echo time();").Output()
	must(t, err)
	// The clock that PHP reads may be some milliseconds behind ours: a second, at its edge.
	if at := number(string(out)) - int64(s); at < before-1 || at > time.Now().Unix() {
		t.Fatalf("PHP's clock says %s at %d, want it %d s ahead", out, before, s)
	}
}

// work has the library's own worker take one job, if there is any.
func (p *project) work(t testing.TB) {
	t.Helper()
	if out, err := p.php(t, append(slices.Clone(p.once), p.queue)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// acks settles a claim, and reports whether the lease was still ours.
func (p *project) acks(t testing.TB, d delivery) bool {
	t.Helper()
	reply, err := settle.Run(context.Background(), p.redis, p.keys(), p.counted, p.notify, d.seq, "ack", 0).Slice()
	must(t, err)
	return number(reply[1]) == 4
}

// Kills on both sides, and PHP's clock 5 s off: as with right clocks, for the leases are longer than that.
func TestNothingIsLostOrDoubledWhilePHPsClockIsOff(t *testing.T) {
	for name, s := range map[string]int{"ahead": skew, "behind": -skew} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, p *project) {
				p.shift(t, s)
				m := newMixed(t, p, *mixedSeed)
				m.jobs, m.lease = 100, 3*skew*time.Second
				m.run()
				m.judge(0)
			}, think3, think2, laravel)
		})
	}
}

// What ends by our clock, and PHP moves: leases and delays are 5 s shorter for a worker whose clock is ahead.
func TestPHPWithAClockAheadTakesALeaseSoMuchEarly(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		p.shift(t, skew)
		p.push(t, note("delete"), note("delete"))
		long := p.claim(t)
		p.work(t)
		if n := p.count(t, ran); n != 1 {
			t.Errorf("%d jobs ran, want the one that is not leased", n)
		}
		if p.work(t); p.count(t, ran) != 1 || !p.acks(t, long) {
			t.Error("a lease that is longer than the skew was taken")
		}
		p.lease = (skew - 2) * 1000
		p.push(t, note("delete"))
		short := p.claim(t)
		if p.work(t); p.count(t, ran) != 2 || p.acks(t, short) {
			t.Errorf("%d jobs ran: a lease that is shorter than the skew was not taken", p.count(t, ran))
		}
		m := newMixed(t, p, 0)
		publish := &job.Publish{Namespace: m.ns, Queue: p.queue, Delay: (skew - 2) * time.Second,
			Messages: []job.Message{{Payload: []byte(p.firstPayload(t))}}}
		m.store.Run(context.Background(), m.store.NewLane(), &job.Batch{Publishes: []*job.Publish{publish}})
		must(t, publish.Err)
		if p.work(t); p.count(t, ran) != 3 {
			t.Errorf("%d jobs ran: what was delayed for less than the skew was not moved", p.count(t, ran))
		}
	}, think3, think2, laravel)
}

// firstPayload is a payload as the library pushes it, and takes it away.
func (p *project) firstPayload(t testing.TB) string {
	t.Helper()
	p.push(t, note("delete"))
	payload, err := p.redis.LPop(context.Background(), p.key).Result()
	must(t, err)
	return payload
}

// PHP reserves by its own clock. Where that is behind, its reservation ends so much before retry_after,
// and a job that runs longer than the rest is handed out again while it runs: by us as by PHP's other workers.
func TestAReservationOfPHPWithAClockBehindEndsSoMuchEarly(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		const retryAfter = skew + 3
		p.shift(t, -skew)
		p.env = append(p.env, fmt.Sprintf("RETRY_AFTER=%d", retryAfter))
		p.push(t, note("hang"))
		hangs := p.php(t, append(slices.Clone(p.worker), p.queue)...)
		must(t, hangs.Start())
		defer func() { _ = hangs.Process.Kill(); _ = hangs.Wait() }()
		redistest.Until(t, patience, "the job runs", func() bool { return p.count(t, func(s seen) bool { return s.Hangs }) == 1 })
		reserved := p.redis.ZRangeWithScores(context.Background(), p.key+":reserved", 0, -1).Val()
		if len(reserved) != 1 || int64(reserved[0].Score) > p.redis.Time(context.Background()).Val().Unix()+retryAfter-skew {
			t.Fatalf("reserved are %v", reserved)
		}
		m := newMixed(t, p, 0)
		lane := m.store.NewLane()
		c := &job.Claim{Namespace: m.ns, Queues: []string{p.queue}, TTR: time.Minute, Count: 1}
		redistest.Until(t, patience, "the job is handed out again", func() bool {
			m.store.Run(context.Background(), lane, &job.Batch{Claims: []*job.Claim{c}})
			must(t, c.Err)
			return len(c.Jobs) == 1
		})
		if float64(c.Jobs[0].Now) < reserved[0].Score*1000 {
			t.Errorf("handed out at %d ms, before %v s", c.Jobs[0].Now, reserved[0].Score)
		}
		if !strings.Contains(string(c.Jobs[0].Payload), "hang") || c.Jobs[0].Attempt != 2 {
			t.Errorf("got attempt %d of %s", c.Jobs[0].Attempt, c.Jobs[0].Payload)
		}
	}, think3, think2, laravel)
}
