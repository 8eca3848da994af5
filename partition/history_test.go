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
	historyTimeout  = 3 * time.Second // of a call; more than a busy machine needs
	historyFaults   = 10              // each may leave a call unknown, and the search doubles with those
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
	moving    bool // the shards change, so there may be two homes: each has its depth, and claims that found nothing are left out; nothing is evicted
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
		over := 0
		if !in.moving {
			over = max(0, len(q.entries)/nameSize-historyCapacity)
		}
		q.entries = q.entries[over*nameSize:]
		q.held = max(0, q.held-over)
		return out.unknown || out.believed || out.evicted == over && (in.moving && out.depth < len(q.entries)/nameSize || out.depth == len(q.entries)/nameSize), q
	case "claim":
		if q.token != "" || q.entries == "" {
			return out.unknown || out.entries == "", q
		}
		if q.held == 0 {
			q.held = min(historyBatch, len(q.entries)/nameSize)
		}
		if in.moving && !out.unknown { // what an older home has may be less than a batch
			q.held = min(q.held, len(out.entries)/nameSize)
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
	sites  []*site // processes; the clients share them
	c      *redis.Client
	began  time.Time
	moving bool

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
	in.moving = h.moving
	begin := time.Since(h.began).Nanoseconds()
	out := call()
	end := time.Since(h.began).Nanoseconds()
	h.mu.Lock()
	defer h.mu.Unlock()
	if out.unknown {
		end = math.MaxInt64
		h.unknown++
	}
	if in.verb == "claim" && h.moving && !out.unknown && out.entries == "" {
		return out // it says nothing
	}
	h.history = append(h.history, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: begin, Return: end})
	return out
}

func (h *historian) site(client int) *site { return h.sites[client%len(h.sites)] }

func (h *historian) produce(client int, name string, n int) {
	s := h.site(client)
	g := &partition.Group{Namespace: s.ns, Partition: name}
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
			s.Produce(ctx, []*partition.Group{g})
			cancel()
			switch {
			case g.Err == nil:
				return answer{evicted: g.Evicted, depth: g.Depth}
			case errors.Is(g.Err, partition.ErrUnknown) && h.believes:
				return answer{believed: true}
			case errors.Is(g.Err, partition.ErrUnknown) && !h.retries:
				return answer{unknown: true}
			case !errors.Is(g.Err, partition.ErrUnknown) && !errors.Is(g.Err, partition.ErrUnavailable):
				s.t.Errorf("produce: %v", g.Err)
			}
		}
	})
}

// drain claims one range in a shard and commits or releases it.
func (h *historian) drain(client int, name string, shard int, release bool) {
	s := h.site(client)
	var claim partition.ClaimResult
	var lease *partition.Lease
	token := fmt.Sprintf("claim %p", &claim) // who holds it; the store's own is seen by the holder only
	out := h.note(client, action{partition: name, verb: "claim", token: token}, func() answer {
		ctx, cancel := context.WithTimeout(context.Background(), historyTimeout)
		defer cancel()
		claim = s.Claim(ctx, []partition.ClaimRequest{{Namespace: s.ns, Partition: name, MaxBatches: 1}}, time.Hour)[0]
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
			return answer{unknown: s.ReleaseUnknown(ctx, []partition.ClaimResult{claim}) != nil}
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
		s.Commit(ctx, []*partition.Commit{c})
		return c.Err
	}
	if release {
		verb = "release"
		settle = func(ctx context.Context) error {
			r := &partition.Release{Lease: lease, Attempt: lease.Attempt}
			s.Release(ctx, []*partition.Release{r})
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

// record lets clients use three partitions and returns their history. Where there are several
// processes they drain what is due.
func record(t *testing.T, seed uint64, processes int, seeded func(*historian)) *historian {
	t.Helper()
	capacity, n := historyCapacity, 5
	if processes > 1 {
		capacity, n = 1000, 3 // so that there are not too many orders
	}
	server := redistest.Start(t)
	line := redistest.StartFaultLine(t, server.Addr)
	h := &historian{c: server.Client(), began: time.Now(), moving: processes > 1}
	for range processes {
		s := open(t, line.URL, func(p *partition.Policy) {
			p.Capacity, p.Batch, p.Linger = capacity, historyBatch, 0
		})
		usable(t, s.Store)
		h.sites = append(h.sites, s)
	}
	faults, left := rand.New(rand.NewPCG(seed, 0)), historyFaults
	line.Set(func() (redistest.Fault, float64) {
		if left == 0 || faults.IntN(25) > 0 {
			return redistest.Passes, 0
		}
		left--
		return []redistest.Fault{redistest.LosesRequest, redistest.LosesReply, redistest.LosesReply, redistest.StallsReply, redistest.StallsRequest}[faults.IntN(5)], 0
	})
	if seeded != nil {
		seeded(h)
	}
	var clients sync.WaitGroup
	for i := range n {
		roll := rand.New(rand.NewPCG(seed, uint64(i)+1))
		clients.Go(func() {
			for range 45 {
				if name := fmt.Sprint("p", roll.IntN(3)); roll.IntN(5) < 3 {
					h.produce(i, name, 1+roll.IntN(3))
				} else if !h.moving {
					h.drain(i, name, 0, roll.IntN(4) == 0)
				} else {
					h.drainDue(i, roll)
				}
			}
		})
	}
	clients.Wait()
	return h
}

// drainDue drains a partition that is due in one of the shards, if there is one.
func (h *historian) drainDue(client int, roll *rand.Rand) {
	s := h.site(client)
	for _, shard := range roll.Perm(s.ns.Shards()) {
		ctx, cancel := context.WithTimeout(context.Background(), historyTimeout)
		due, _, _ := s.Due(ctx, s.ns, shard, 0, 10) // after an error there are others
		cancel()
		if len(due) > 0 {
			h.drain(client, due[roll.IntN(len(due))].Partition, shard, roll.IntN(4) == 0)
			return
		}
	}
}

// seeds is how many of the whole are tried with -short.
func seeds(whole, short int) int {
	if testing.Short() {
		return short
	}
	return whole
}

func judge(h *historian) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(queueModel, h.history, 2*time.Minute)
}

func TestHistoriesAreThoseOfABoundedQueue(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds(6, 2)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			h := record(t, seed, 1, nil)
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
				if judge(record(t, seed, 1, seeded)) == porcupine.Illegal {
					return
				}
			}
			t.Error("no history of it was turned down")
		})
		t.Run(name+", of two processes", func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(15) {
				if judge(record(t, seed, 2, seeded)) == porcupine.Illegal {
					return
				}
			}
			t.Error("no history of it was turned down")
		})
	}
}

// Two processes serve the clients.
func TestHistoriesOfTwoProcessesAreThoseOfAQueue(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds(4, 1)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			h := record(t, seed, 2, nil)
			if got := judge(h); got == porcupine.Illegal { // a busy machine may be too slow for a verdict
				t.Errorf("%d operations, %d unknown: %s", len(h.history), h.unknown, got)
			}
			drained := 0
			for _, op := range h.history {
				if op.Output.(answer).entries != "" {
					drained++
				}
			}
			if drained < 10 || len(h.history) < 100 {
				t.Errorf("%d operations, %d claims of entries: this proves little", len(h.history), drained)
			}
			t.Logf("%d operations, %d of them unknown, %d claims of entries", len(h.history), h.unknown, drained)
		})
	}
}
