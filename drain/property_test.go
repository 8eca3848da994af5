package drain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// A chaos is a sink and a store that misbehave at random until a moment, and a
// record of what the sink took.
type chaos struct {
	rng    *rand.Rand
	until  time.Time
	faulty int          // of 100 calls to the store
	outage [2]time.Time // all of them in between
	maxAge time.Duration

	mu   sync.Mutex
	took map[string]map[int64]bool // by partition
	ids  map[string]string         // batch id → its entries
	sets map[string]string         // the other way round
	bad  []string
}

func (c *chaos) roll(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *chaos) over() bool { return !time.Now().Before(c.until) }

func (c *chaos) complain(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bad = append(c.bad, fmt.Sprintf(format, args...))
}

func (c *chaos) fault() fault {
	out := time.Now().After(c.outage[0]) && time.Now().Before(c.outage[1])
	if c.over() || !out && c.roll(100) >= c.faulty {
		return fault{}
	}
	return []fault{unavailable, lostReply, lostRequest}[c.roll(3)]
}

// identify holds batch ids to "the same if and only if the entries are".
func (c *chaos) identify(b *sink.Batch) {
	var set strings.Builder
	set.WriteString(b.Partition)
	for _, e := range b.Entries {
		fmt.Fprintf(&set, " %d", e.Seq)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.ids[b.ID()]; ok && old != set.String() {
		c.bad = append(c.bad, fmt.Sprintf("one id, two batches: %s and %s", old, set.String()))
	}
	if old, ok := c.sets[set.String()]; ok && old != b.ID() {
		c.bad = append(c.bad, fmt.Sprintf("two ids of one batch: %s", set.String()))
	}
	c.ids[b.ID()], c.sets[set.String()] = set.String(), b.ID()
}

func (c *chaos) take(b *sink.Batch, i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.took[b.Partition] == nil {
		c.took[b.Partition] = map[int64]bool{}
	}
	c.took[b.Partition][b.Entries[i].Seq] = true
}

func (c *chaos) takeAll(batches []*sink.Batch) {
	for _, b := range batches {
		for i := range b.Entries {
			c.take(b, i)
		}
	}
}

func (c *chaos) accepted(partition string, lo, hi int64) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for seq := lo; seq < hi; seq++ {
		if c.took[partition][seq] {
			n++
		}
	}
	return n
}

func (c *chaos) write(ctx context.Context, batches []*sink.Batch) error {
	for _, b := range batches {
		c.identify(b)
		for _, e := range b.Entries {
			if e.Seq < b.FirstSeq {
				c.complain("entry %d before FirstSeq %d", e.Seq, b.FirstSeq)
			}
		}
		if time.Until(b.Deadline) <= 0 || time.Until(b.Deadline) > c.maxAge {
			c.complain("deadline in %v", time.Until(b.Deadline))
		}
	}
	wait := time.NewTimer(time.Duration(c.roll(40)*c.roll(40)) * time.Millisecond)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		if c.roll(2) == 0 {
			c.takeAll(batches) // it got there after all
		}
		return ctx.Err()
	}
	for _, b := range batches {
		for i := range b.Entries {
			if string(b.Entries[i].Payload) == "poison" {
				return sink.Permanent(errors.New("poison"))
			}
		}
	}
	if c.over() {
		c.takeAll(batches)
		return nil
	}
	switch c.roll(12) {
	case 0:
		return errDown
	case 1:
		c.takeAll(batches) // an error after the fact
		return errDown
	case 2:
		return sink.Throttle(errDown, time.Duration(c.roll(3000))*time.Millisecond)
	case 3:
		return fmt.Errorf("write: %w", sink.ErrNotConnected)
	case 4:
		panic(errDown)
	case 5:
		return &sink.BatchError{}
	case 6:
		<-ctx.Done()
		return ctx.Err()
	case 7, 8:
		return c.partly(batches)
	}
	c.takeAll(batches)
	return nil
}

// partly takes some entries and names the others.
func (c *chaos) partly(batches []*sink.Batch) error {
	var e sink.BatchError
	for i, b := range batches {
		for j := range b.Entries {
			switch c.roll(20) {
			case 0:
				e.Fail(i, j, errDown)
			case 1:
				e.Fail(i, j, sink.Permanent(errDown))
			case 2:
				e.Fail(i, j, sink.Throttle(errDown, time.Second))
			default:
				c.take(b, j)
			}
		}
	}
	if len(e.Failed) == 0 {
		return nil
	}
	return &e
}

// report collects what goes wrong inside a bubble, where rapid cannot be told.
type report struct {
	testing.TB
	mu    sync.Mutex
	texts []string
}

func (r *report) Helper() {}

func (r *report) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, fmt.Sprintf(format, args...))
}

func (r *report) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *report) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// Whatever sink and store do, every entry ends in exactly one class, what is
// counted delivered reached the sink, nothing stale does, and once they behave
// everything drains.
func TestEntriesAreAccountedForWhateverFails(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		partitions := rapid.IntRange(1, 12).Draw(rt, "partitions")
		rounds := rapid.IntRange(1, 10).Draw(rt, "rounds")
		maxBatches := rapid.IntRange(0, 3).Draw(rt, "MaxBatches")
		inFlight := rapid.IntRange(0, 3).Draw(rt, "MaxInFlight")
		faulty := rapid.SampledFrom([]int{0, 10, 40}).Draw(rt, "faulty")
		coalescing := rapid.Bool().Draw(rt, "coalescing")
		poisons := rapid.Bool().Draw(rt, "poisons")
		policy := func(p *partition.Policy) {
			p.Batch = rapid.IntRange(1, 20).Draw(rt, "batch")
			p.Capacity = rapid.IntRange(5, 500).Draw(rt, "capacity")
			p.MaxAge = time.Duration(rapid.IntRange(2, 40).Draw(rt, "max age")) * time.Second
			p.Linger = time.Duration(rapid.IntRange(0, 1500).Draw(rt, "linger")) * time.Millisecond
			p.Shards = rapid.IntRange(1, 3).Draw(rt, "shards")
			if rapid.IntRange(0, 5).Draw(rt, "delivery") == 0 {
				p.Delivery = partition.AtMostOnce
			}
		}
		rep := &report{TB: t}
		synctest.Test(t, func(*testing.T) {
			r := newRig(rep, policy)
			c := &chaos{
				rng: rand.New(rand.NewPCG(seed, 1)), until: time.Now().Add(30 * time.Second), faulty: faulty,
				maxAge: r.ns.Policy.MaxAge,
				took:   map[string]map[int64]bool{}, ids: map[string]string{}, sets: map[string]string{},
			}
			r.cfg.Workers, r.cfg.SinkTimeout, r.cfg.Lease = 4, 2*time.Second, 5*time.Second
			r.sink.caps = sink.Caps{MaxBatches: maxBatches, MaxInFlight: inFlight}
			if coalescing {
				r.sink.caps = sink.Caps{
					MaxBatches: 2 + c.roll(30), MaxInFlight: inFlight, PreferEntries: c.roll(200),
					MaxBytes: c.roll(2) * 500, Linger: time.Duration(1+c.roll(1500)) * time.Millisecond,
				}
			}
			r.sink.write = c.write
			r.store.roundTrip = time.Duration(c.roll(3)) * time.Millisecond
			r.store.accepted = c.accepted
			r.store.claimFault = func(partition.ClaimRequest) fault { return c.fault() }
			r.store.settleFault = func(*partition.Lease) fault { return c.fault() }
			r.store.dueFault = func() error { return c.fault().err }
			begin := time.Now().Add(time.Duration(c.roll(15)) * time.Second)
			c.outage = [2]time.Time{begin, begin.Add(time.Duration(c.roll(15)) * time.Second)}
			r.start()
			for range rounds {
				name := strings.Repeat("p", c.roll(partitions)+1)
				payloads := make([]string, c.roll(100)+1)
				if poisons {
					payloads[c.roll(len(payloads))] = "poison"
				}
				for len(payloads) > 0 {
					n := c.roll(len(payloads)) + 1
					age := time.Duration(c.roll(int(r.ns.Policy.MaxAge)))
					r.store.produceAll(r.ns, name, age, payloads[:n]...)
					payloads = payloads[n:]
				}
				clocktest.Pass(time.Duration(c.roll(3000)) * time.Millisecond)
				if c.roll(5) == 0 && r.store.depth(r.ns, name) > 3 {
					r.store.remove(r.ns, name, 3)
				}
			}
			clocktest.Pass(time.Until(c.until))
			r.drained(2 * time.Minute)
			r.stop()
			for p := range partitions {
				r.ordered(strings.Repeat("p", p+1))
				if r.ns.Policy.Delivery == partition.AtMostOnce {
					r.presentedOnce(strings.Repeat("p", p+1))
				}
			}
			if left := r.store.leased(); len(left) > 0 {
				rep.Errorf("still leased: %v", left)
			}
			rep.texts = append(rep.texts, c.bad...)
		})
		if len(rep.texts) > 0 {
			rt.Fatalf("%s", strings.Join(rep.texts, "\n"))
		}
	})
}
