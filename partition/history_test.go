package partition_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// A partition seen from outside is one queue that keeps its newest entries and
// lends its oldest to one holder at a time. Clients use it side by side over
// connections that lose data; porcupine looks for one order of their calls in which
// every answer is right. A call with an unknown outcome may have run at any later
// time, or never.

const (
	historyCapacity = 12
	historyBatch    = 4
	historyTimeout  = 200 * time.Millisecond // of a call; more than a busy machine needs
)

// queue is a partition: its entries' names, 5 bytes each, oldest first; how many
// of them are the range that was given out; and whose it is.
type queue struct {
	entries string
	held    int
	token   string
}

const nameSize = 5

// An action is the call of a client; an answer is its result.
type action struct {
	partition string
	verb      string // produce, claim, commit, release
	entries   string // produce
	token     string
}

type answer struct {
	unknown        bool
	believed       bool   // produce, seeded: without a reply
	evicted, depth int    // produce
	entries        string // claim
	gone           bool   // commit
}

func (q queue) step(in action, out answer) (bool, queue) {
	switch in.verb {
	case "produce":
		q.entries += in.entries
		over := max(0, len(q.entries)/nameSize-historyCapacity)
		q.entries = q.entries[over*nameSize:]
		q.held = max(0, q.held-over)
		return out.unknown || out.believed || out.evicted == over && out.depth == len(q.entries)/nameSize, q
	case "claim":
		if q.token != "" || q.entries == "" {
			return out.unknown || out.entries == "", q
		}
		if q.held == 0 {
			q.held = min(historyBatch, len(q.entries)/nameSize)
		}
		q.token = in.token
		return out.unknown || out.entries == q.entries[:q.held*nameSize], q
	case "commit":
		if q.token != in.token {
			return out.unknown || out.gone, q
		}
		return out.unknown || !out.gone, queue{entries: q.entries[q.held*nameSize:]}
	default: // release: from others, and again, it does nothing
		if q.token == in.token {
			q.token = ""
		}
		return true, q
	}
}

var queueModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		by := map[string][]porcupine.Operation{}
		for _, op := range history {
			name := op.Input.(action).partition
			by[name] = append(by[name], op)
		}
		for _, part := range by {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return queue{} },
	Step: func(state, in, out any) (bool, any) { return state.(queue).step(in.(action), out.(answer)) },
}

// A historian runs the clients and records their calls.
type historian struct {
	s     *site
	c     *redis.Client
	began time.Time

	retries   bool // seeded: repeat a produce with an unknown outcome, unrecorded
	believes  bool // seeded: take a produce with an unknown outcome for stored
	forgetful bool // seeded: a lease does not keep others away

	mu      sync.Mutex
	history []porcupine.Operation
	made    int
	unknown int
}

// note runs one call and records it. A call with answer.unknown never ends.
func (h *historian) note(client int, in action, call func() answer) answer {
	begin := time.Since(h.began).Nanoseconds()
	out := call()
	end := time.Since(h.began).Nanoseconds()
	h.mu.Lock()
	defer h.mu.Unlock()
	if out.unknown {
		end = math.MaxInt64
		h.unknown++
	}
	h.history = append(h.history, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: begin, Return: end})
	return out
}

func (h *historian) produce(client int, name string, n int) {
	g := &partition.Group{Namespace: h.s.ns, Partition: name}
	in := action{partition: name, verb: "produce"}
	h.mu.Lock()
	for range n {
		h.made++
		id := fmt.Sprintf("%05d", h.made)
		in.entries += id
		g.Entries = append(g.Entries, entry(id))
	}
	h.mu.Unlock()
	h.note(client, in, func() answer {
		for {
			ctx, cancel := context.WithTimeout(context.Background(), historyTimeout)
			h.s.Produce(ctx, []*partition.Group{g})
			cancel()
			switch {
			case g.Err == nil:
				return answer{evicted: g.Evicted, depth: g.Depth}
			case errors.Is(g.Err, partition.ErrUnknown) && h.believes:
				return answer{believed: true}
			case errors.Is(g.Err, partition.ErrUnknown) && !h.retries:
				return answer{unknown: true}
			case !errors.Is(g.Err, partition.ErrUnknown) && !errors.Is(g.Err, partition.ErrUnavailable):
				h.s.t.Errorf("produce: %v", g.Err)
			}
		}
	})
}

// drain claims one range and commits or releases it.
func (h *historian) drain(client int, name string, release bool) {
	var claim partition.ClaimResult
	var lease *partition.Lease
	token := fmt.Sprintf("claim %p", &claim) // who holds it; the store's own is seen by the holder only
	out := h.note(client, action{partition: name, verb: "claim", token: token}, func() answer {
		ctx, cancel := context.WithTimeout(context.Background(), historyTimeout)
		defer cancel()
		claim = h.s.Claim(ctx, []partition.ClaimRequest{{Namespace: h.s.ns, Partition: name, MaxBatches: 1}}, time.Hour)[0]
		if claim.Err != nil {
			// Unavailable is written down as unknown, too: it may never have happened.
			return answer{unknown: true}
		}
		lease = claim.Lease
		return answer{entries: payloads(lease)}
	})
	if out.unknown {
		h.note(client, action{partition: name, verb: "release", token: token}, func() answer {
			ctx, cancel := context.WithTimeout(context.Background(), historyTimeout)
			defer cancel()
			return answer{unknown: h.s.ReleaseUnknown(ctx, []partition.ClaimResult{claim}) != nil}
		})
		return
	}
	if lease == nil {
		return
	}
	if h.forgetful {
		h.c.ZAdd(context.Background(), "sw:{default.0}:ready", redis.Z{Score: 1, Member: name})
	}
	verb := "commit"
	settle := func(ctx context.Context) error {
		c := &partition.Commit{Lease: lease, Lo: lease.From, Hi: lease.To, Delivered: int(lease.To - lease.From)}
		h.s.Commit(ctx, []*partition.Commit{c})
		return c.Err
	}
	if release {
		verb = "release"
		settle = func(ctx context.Context) error {
			r := &partition.Release{Lease: lease, Attempt: lease.Attempt}
			h.s.Release(ctx, []*partition.Release{r})
			return r.Err
		}
	}
	for range 3 {
		again := h.note(client, action{partition: name, verb: verb, token: token}, func() answer {
			ctx, cancel := context.WithTimeout(context.Background(), historyTimeout)
			defer cancel()
			err := settle(ctx)
			if err != nil && !errors.Is(err, partition.ErrGone) {
				return answer{unknown: true}
			}
			return answer{gone: err != nil}
		}).unknown
		if !again {
			return
		}
	}
}

func payloads(l *partition.Lease) string {
	var b strings.Builder
	if l != nil {
		for _, e := range l.Entries {
			b.Write(e.Payload)
		}
	}
	return b.String()
}

// record lets clients use three partitions and returns their history.
func record(t *testing.T, seed uint64, seeded func(*historian)) *historian {
	t.Helper()
	server := redistest.Start(t)
	line := redistest.StartFaultLine(t, server.Addr)
	s := open(t, line.URL, func(p *partition.Policy) {
		p.Capacity, p.Batch, p.Linger = historyCapacity, historyBatch, 0
	})
	if _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	faults := rand.New(rand.NewPCG(seed, 0))
	line.Set(func() (redistest.Fault, float64) {
		if faults.IntN(25) > 0 {
			return redistest.Passes, 0
		}
		return []redistest.Fault{redistest.LosesRequest, redistest.LosesReply, redistest.LosesReply, redistest.StallsReply, redistest.StallsRequest}[faults.IntN(5)], 0
	})
	h := &historian{s: s, c: server.Client(), began: time.Now()}
	if seeded != nil {
		seeded(h)
	}
	var clients sync.WaitGroup
	for i := range 5 {
		roll := rand.New(rand.NewPCG(seed, uint64(i)+1))
		clients.Go(func() {
			for range 45 {
				name := fmt.Sprint("p", roll.IntN(3))
				if roll.IntN(5) < 3 {
					h.produce(i, name, 1+roll.IntN(3))
				} else {
					h.drain(i, name, roll.IntN(4) == 0)
				}
			}
		})
	}
	clients.Wait()
	return h
}

func judge(h *historian) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(queueModel, h.history, 20*time.Second)
}

func TestHistoriesAreThoseOfABoundedQueue(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			h := record(t, seed, nil)
			if got := judge(h); got != porcupine.Ok {
				t.Errorf("%d operations, %d unknown: %s", len(h.history), h.unknown, got)
			}
			if h.unknown < 3 || len(h.history) < 200 {
				t.Errorf("%d operations, %d unknown: this proves little", len(h.history), h.unknown)
			}
			t.Logf("%d operations, %d of them unknown", len(h.history), h.unknown)
		})
	}
}

// A checker that finds no seeded bug proves nothing.
func TestHistoriesOfSeededBugsAreRejected(t *testing.T) {
	t.Parallel()
	for name, seeded := range map[string]func(*historian){
		"a client that retries by itself":      func(h *historian) { h.retries = true },
		"a client that believes what it asked": func(h *historian) { h.believes = true },
		"a lease that excludes nobody":         func(h *historian) { h.forgetful = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(5) {
				if judge(record(t, seed, seeded)) == porcupine.Illegal {
					return
				}
			}
			t.Error("no history of it was turned down")
		})
	}
}
