package guard

import (
	"math/bits"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A State is how a sink is doing.
type State string

const (
	Opening State = "opening" // Open has not succeeded yet, and has not failed
	Open    State = "open"
	Failing State = "failing" // the last Write or Open failed, and none has succeeded since
	Tripped State = "tripped" // the breaker lets only probes through
)

// Status is how a Drainer is doing, of this process only. It is for people.
type Status struct {
	Targets []TargetStatus // in the order of New
	Workers WorkerStatus   // of all targets together
	// BatchFill is how many batches were written, by their entries: FillBounds[i-1] <
	// entries <= FillBounds[i].
	BatchFill []int64
}

// TargetStatus is how the drain of one namespace is doing.
type TargetStatus struct {
	Namespace string
	Label     string // the sink's URL without its secrets
	Type      string // the scheme of that URL
	State     State
	// FailingSince is when the first Write or Open failed since one succeeded; zero: the last
	// one succeeded.
	FailingSince    time.Time
	P50, P99        time.Duration // of a Write, in the last minute; 0: there was none
	WritesPerSecond float64       // of the last 10 to 20 s
	Retries         int64         // Writes and Opens that failed and are tried again, since the start
	LastError       string        // of a Write or an Open, 300 bytes at most
	LastErrorAt     time.Time
	InFlight        int // Writes that run
	Concurrency     int // Writes that may run at once
	// Coalesces: the sink takes the entries of several partitions in one Write, and Fill
	// is how full the Write that gathers now is, 0 to 1.
	Coalesces bool
	Fill      float64
	Workers   WorkerStatus
	// Of a Pusher's target only: the name of its sink, and how many queues are pushed to it
	// that lately had jobs or that a rule names.
	Sink   string
	Queues int
}

// WorkerStatus is how many leases may be worked on at once, and how many are.
type WorkerStatus struct{ Size, Busy int }

// FillBounds are the bounds of Status.BatchFill, in entries.
func FillBounds() []int {
	bounds := make([]int, len(fillBuckets))
	for i, b := range fillBuckets {
		bounds[i] = int(b)
	}
	return bounds
}

// fillBuckets are the bounds of a batch's entries; a batch has 128 at most.
var fillBuckets = prometheus.ExponentialBuckets(1, 2, 8)

// A fillCount is how many batches were written, by the bucket of their entries.
type fillCount [8]atomic.Int64

func (c *fillCount) add(entries int) {
	c[min(bits.Len(uint(max(entries, 1)-1)), len(c)-1)].Add(1) // #nosec G115 -- not negative
}

// NewStatus is that of no target.
func NewStatus() Status { return Status{BatchFill: make([]int64, len(fillBuckets))} }

// Add adds a target, and what its guard knows of the sink.
func (s *Status) Add(t TargetStatus, g *Guard) {
	g.describe(&t)
	s.Targets = append(s.Targets, t)
	s.Workers.Size += t.Workers.Size
	s.Workers.Busy += t.Workers.Busy
	for i := range s.BatchFill {
		s.BatchFill[i] += g.fill[i].Load()
	}
}

// describe sets what is known of the sink.
func (g *Guard) describe(t *TargetStatus) {
	t.Type, _, _ = strings.Cut(t.Label, ":")
	t.P50, t.P99, t.WritesPerSecond = g.recent.figures()
	t.InFlight, t.Concurrency = g.opener.running(), g.AtOnce()
	open, failing := g.IsOpen(), g.health.describe(t)
	switch {
	case failing && open && g.Tripped():
		t.State = Tripped
	case failing:
		t.State = Failing
	case open:
		t.State = Open
	default:
		t.State = Opening
	}
}

// describe sets what is known of failures, and reports whether the sink fails now.
func (h *health) describe(t *TargetStatus) (failing bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.Retries = h.retries
	t.LastError = h.words
	t.LastErrorAt = h.wordsAt
	if failing = h.failing && h.answered.IsZero(); failing {
		t.FailingSince = h.unanswered
	}
	return failing
}
