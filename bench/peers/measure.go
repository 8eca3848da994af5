package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/bench"
)

const (
	// patience is how long nothing may come out before the rest counts as lost.
	patience = 5 * time.Second
	// longest bounds the wait for a side that drains more slowly than it fills.
	longest = 30 * time.Second
)

// sample is one turn of one side.
type sample struct {
	Acked    int64   `json:"acked"`
	Failed   int64   `json:"failed"`     // sent without an acknowledgement; may be stored
	Lost     int64   `json:"lost"`       // acknowledged and never delivered
	Left     int64   `json:"left"`       // still coming out when the wait for them ended
	Repeated int64   `json:"repeated"`   // delivered once more
	In       float64 `json:"in_per_s"`   // acknowledged a second, while loaded
	EndToEnd float64 `json:"e2e_per_s"`  // delivered a second, from the first sent to the last delivered
	Tail     float64 `json:"tail_s"`     // from the last acknowledgement to the last delivery
	Own      float64 `json:"own_cpu_us"` // an event: senders and consumers, and the server where it is embedded
	Servers  float64 `json:"servers_cpu_us"`
	Fill     float64 `json:"fill"`         // events a batch ÷ 128
	Others   float64 `json:"others_share"` // of the machine's CPU, used by programs that are not the side's
}

// CPU is what an event cost all processes together, in µs.
func (s sample) CPU() float64 { return s.Own + s.Servers }

// measure starts a side, loads it while it drains, and waits until it is empty.
func measure(ctx context.Context, c contender, cond conditions) (_ sample, err error) {
	if cond.senders == 0 {
		cond.senders = c.senders
	}
	runtime.GC() // the turn before pays for its own garbage
	s, err := c.open(ctx, cond)
	if err != nil {
		return sample{}, fmt.Errorf("open: %w", err)
	}
	defer s.close()

	t := newTally()
	draining, stop := context.WithCancel(ctx)
	var delivering sync.WaitGroup
	var deliverErr error
	delivering.Go(func() { deliverErr = s.deliver(draining, t) })
	defer func() { stop(); delivering.Wait() }()

	before, err := readUsage(s.servers())
	if err != nil {
		return sample{}, err
	}
	start := time.Now()
	l := load(ctx, c, cond, s)
	loaded := time.Now()
	if l.acked == 0 {
		return sample{}, fmt.Errorf("nothing was acknowledged: %w", errors.Join(l.err, ctx.Err()))
	}
	moving := !drain(ctx, t, l.acked, loaded)
	after, err := readUsage(s.servers())
	if err != nil {
		return sample{}, err
	}
	stop()
	delivering.Wait()
	if err := errors.Join(deliverErr, ctx.Err()); err != nil {
		return sample{}, fmt.Errorf("deliver: %w", err)
	}
	if n := t.damaged.Load(); n > 0 {
		return sample{}, fmt.Errorf("%d events came out damaged", n)
	}

	lost, left := max(0, l.acked-t.delivered.Load()), int64(0)
	if moving {
		lost, left = left, lost
	}
	delivered, last := t.delivered.Load(), time.Unix(0, t.last.Load())
	used := after.since(before)
	return sample{
		Acked: l.acked, Failed: l.failed, Lost: lost, Left: left, Repeated: t.repeated.Load(),
		In:       float64(l.acked) / loaded.Sub(start).Seconds(),
		EndToEnd: float64(min(delivered, l.acked)) / max(last.Sub(start), loaded.Sub(start)).Seconds(),
		Tail:     max(0, last.Sub(loaded)).Seconds(),
		Own:      float64(used.own.Microseconds()) / float64(l.acked),
		Servers:  float64(used.servers.Microseconds()) / float64(l.acked),
		Fill:     float64(delivered+t.repeated.Load()) / float64(batch*max(1, t.batches.Load())),
		Others:   float64(max(0, used.machine-used.own-used.servers)) / float64(used.at) / float64(runtime.NumCPU()),
	}, nil
}

// drain waits until everything acknowledged has come out, or nothing comes any
// more. It is false when it ended for neither reason.
func drain(ctx context.Context, t *tally, acked int64, loaded time.Time) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for t.delivered.Load() < acked && ctx.Err() == nil {
		now := <-tick.C
		last := time.Unix(0, t.last.Load())
		if now.Sub(loaded) > patience && now.Sub(last) > patience {
			return true
		}
		if now.Sub(loaded) > longest {
			return false
		}
	}
	return ctx.Err() == nil
}

// loaded is how a load ended.
type loaded struct {
	acked, failed int64
	err           error // of one of those that failed
}

// load is closed: each sender sends its next lot when the one before is
// acknowledged, as fast as the side takes them.
func load(ctx context.Context, c contender, cond conditions, s side) loaded {
	limit := int64(maxEvents)
	if cond.limit > 0 {
		limit = cond.limit
	}
	var next, acked, failed atomic.Int64
	var failure atomic.Pointer[error]
	padding, until := bench.Padding(cond.payload), time.Now().Add(cond.duration)
	var senders sync.WaitGroup
	for range cond.senders {
		senders.Go(func() {
			buf := make([]byte, 0, c.lot*cond.payload)
			events := make([]event, 0, c.lot)
			for ctx.Err() == nil && time.Now().Before(until) {
				first := next.Add(int64(c.lot)) - int64(c.lot)
				end := min(first+int64(c.lot), limit)
				if first >= end {
					return
				}
				buf, events = buf[:0], events[:0]
				for n := first; n < end; n++ {
					from := len(buf)
					buf = bench.AppendPayload(buf, n, padding)
					events = append(events, event{c.partitionOf(n, cond.partitions), buf[from:len(buf):len(buf)]})
				}
				if err := s.send(ctx, events); err != nil {
					failed.Add(end - first)
					failure.Store(&err)
					continue
				}
				acked.Add(end - first)
			}
		})
	}
	senders.Wait()
	l := loaded{acked: acked.Load(), failed: failed.Load()}
	if err := failure.Load(); err != nil {
		l.err = *err
	}
	return l
}

func (c contender) partitionOf(n int64, partitions int) int {
	if c.grouped {
		n /= int64(c.lot)
	}
	return int(n % int64(partitions))
}
