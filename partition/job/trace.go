package job

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

// A TraceEvent is what happened to a job.
type TraceEvent struct {
	AtMS int64 `json:"at_ms"` // Unix ms on the store's clock
	// Event is published, rescheduled, committed, rolled_back, promoted, claimed, written,
	// acked, nacked, buried, deferred, requeued, lapsed or respawned; or how the job ended: deleted,
	// moved, dead, expired, lost.
	Event   string `json:"event"`
	By      string `json:"by,omitempty"` // a token, "schedule NAME", on_end, push
	Attempt int    `json:"attempt,omitempty"`
	Reason  string `json:"reason,omitempty"`  // why it is dead
	Sink    string `json:"sink,omitempty"`    // that was written to
	Outcome string `json:"outcome,omitempty"` // of the write: accepted, rejected, retried
	Status  int    `json:"status,omitempty"`  // that a webhook answered
	MS      int64  `json:"ms,omitempty"`      // how long the write took
	Error   string `json:"error,omitempty"`   // maxTracedError of what a worker said with a nack or bury
}

// settles reports whether it can only come after the writes of an attempt.
func (e *TraceEvent) settles(attempt int) bool {
	switch e.Event {
	case "nacked", "buried", "deferred", "requeued":
		return e.Attempt == attempt
	case "acked", "dead", "expired", "lost":
		return true
	}
	return false
}

// Traces are best effort: they are noted by the processes that did something, after it was done,
// and what a process cannot hold or write is dropped and counted. Nothing waits for them. Each
// shard pays with a buffer of its own, so no queue takes the place of another namespace's events.
const (
	traceEvery = 100 * time.Millisecond // events of so long share a call
	maxTraced  = 1024                   // events of a shard that a process holds
	traceCall  = 256                    // events of a call: about 1 ms of Redis
	traceSweep = time.Minute            // how often what is over is forgotten where nothing happens

	maxTracedError = 256 // bytes, so that a trace has room for ten failures
)

// traced are the events of a shard that are not written yet.
type traced struct {
	mu     sync.Mutex
	events []any // of trace.lua
}

// note adds what happened to a job to its trace, where its queue has traces.
func (s *core) note(ns *Namespace, queue string, ref Ref, e TraceEvent) {
	if e.Event == "" {
		return // of an act that changes nothing
	}
	if !ns.traces {
		return
	}
	keep := ns.keepTrace(queue)
	if keep == 0 {
		return
	}
	if e.Event == Dead.String() {
		e.Error = "" // the event before says it
	}
	e.Error = keptText(e.Error, maxTracedError)
	var line bytes.Buffer
	form := json.NewEncoder(&line)
	form.SetEscapeHTML(false) // an error may be a page
	_ = form.Encode(e)        // strings and numbers cannot fail
	t := &ns.shardAt(ref.Shard).trace
	t.mu.Lock()
	defer t.mu.Unlock()
	switch len(t.events) {
	case 3 * maxTraced:
		s.metrics.untraced.Inc()
		return
	case 0:
		s.traced.add(DueShard{ns, ref.Shard})
	}
	t.events = append(t.events, traceMember(ref.Seq, queue), keep.Milliseconds(), bytes.TrimSpace(line.Bytes()))
}

// notePublished notes jobs with sequences in a row.
func (s *core) notePublished(ns *Namespace, queue, by string, ref Ref, count int) {
	for ; ns.Noted() && count > 0; count-- {
		s.note(ns, queue, ref, TraceEvent{AtMS: ref.Seq / 1000, Event: "published", By: by})
		ref.Seq++
	}
}

// noteSettled notes what a settle did, and how the job ended where it did. A touch is in no trace: a worker
// that lives sends many.
func (s *core) noteSettled(t *Settle, now int64) {
	if !t.Namespace.Noted() || t.State == Gone || t.Verb == Touch {
		return
	}
	events := [...]string{Nack: "nacked", Bury: "buried", Defer: "deferred", Requeue: "requeued"}
	e := TraceEvent{AtMS: now, Event: events[t.Verb], By: t.By, Attempt: t.Attempt, Error: t.Error}
	s.note(t.Namespace, t.Queue, t.Ref, e)
	if t.State == Dead || t.State == Expired || t.State == Lost {
		e = TraceEvent{AtMS: now, Event: t.State.String(), Error: t.Error}
		if t.State == Dead {
			e.Reason = map[Verb]Reason{Nack: Nacked, Bury: Buried}[t.Verb].String()
		}
		s.note(t.Namespace, t.Queue, t.Ref, e)
	}
}

// Noted reports whether some queue of the namespace has traces.
func (n *Namespace) Noted() bool { return n.traces }

func traceMember(seq int64, queue string) string { return strconv.FormatInt(seq, 10) + " " + queue }

// Note notes what a caller did with a job that it holds.
func (s *core) Note(ns *Namespace, queue string, ref Ref, e TraceEvent) {
	if ns.Noted() && badJob(ns, queue, ref) == nil && ns.shardAt(ref.Shard) != nil {
		e.AtMS, _ = s.Now()
		s.note(ns, queue, ref, e)
	}
}

// A Tracer writes the events of the traces of this process, and forgets what is over.
type Tracer struct {
	*lifecycle.Loop
	store *Store
}

// NewTracer makes a tracer that is not started.
func NewTracer(s *Store) *Tracer {
	t := &Tracer{store: s}
	t.Loop = lifecycle.New("tracer", nil, t.run)
	return t
}

func (t *Tracer) run(ctx context.Context) {
	sweep := time.NewTicker(traceSweep)
	defer sweep.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-t.store.traced.wake:
			select {
			case <-ctx.Done():
			case <-time.After(traceEvery):
			}
		case <-sweep.C:
			for _, ns := range t.store.Namespaces() {
				for _, sh := range ns.all() {
					if ns.traces {
						t.store.traced.add(DueShard{ns, sh.Number})
					}
				}
			}
		}
		t.write()
	}
}

// write writes what the shards hold. It goes on for a while when the loop ends.
func (t *Tracer) write() {
	s := t.store
	ctx, cancel := s.backend.Probing(context.Background())
	defer cancel()
	var calls []*backend.Call
	var events []int // of each call
	for _, at := range s.traced.take() {
		sh := at.Namespace.shardAt(at.Shard)
		sh.trace.mu.Lock()
		list := sh.trace.events
		sh.trace.events = nil
		sh.trace.mu.Unlock()
		if !at.Namespace.Usable() || sh.Breaker.Suspect() {
			s.metrics.untraced.Add(float64(len(list) / 3))
			continue
		}
		keys := []string{sh.traces, sh.traced}
		for first := true; first || len(list) > 0; first = false { // without any event it forgets what is over
			n := min(len(list), 3*traceCall)
			argv := append([]any{at.Namespace.part(at.Namespace.Policy.MaxTraces)}, list[:n]...)
			calls, events = append(calls, backend.NewCall(luajob.Trace, sh.Breaker, keys,
				argv...)), append(events, n/3)
			list = list[n:]
		}
	}
	if len(calls) > 0 {
		s.backend.Run(ctx, s.backend.Background, calls)
	}
	for i, c := range calls {
		if c.Err != nil {
			s.metrics.untraced.Add(float64(events[i]))
		}
	}
}

// ErrNoTrace: no trace of the job is kept: its queue has none, it is over, or others needed the
// room.
var ErrNoTrace = errors.New("there is no trace of the job")

// Trace returns what happened to a job, which may be gone since, the oldest event first, or
// ErrNoTrace. It may lack events, and the last tenth of a second.
func (s *inspector) Trace(ctx context.Context, ns *Namespace, queue string, ref Ref) ([]TraceEvent, error) {
	sh, err := s.findJob(ctx, ns, queue, ref)
	if err != nil {
		return nil, err
	}
	member := traceMember(ref.Seq, queue)
	var text *redis.StringCmd
	var ends *redis.FloatCmd
	err = s.reads.Do(ctx, func() error {
		pipe := s.backend.Background.Pipeline()
		text, ends = pipe.HGet(ctx, sh.traces, member), pipe.ZScore(ctx, sh.traced, member)
		_, err := pipe.Exec(ctx)
		if errors.Is(err, redis.Nil) {
			return ErrNoTrace
		}
		return backend.Classify(err)
	})
	if err != nil {
		return nil, err
	}
	if now, known := s.Now(); known && ends.Val() < float64(now) {
		return nil, ErrNoTrace
	}
	var events []TraceEvent
	for line := range bytes.Lines([]byte(text.Val())) {
		var e TraceEvent
		if json.Unmarshal(line, &e) == nil {
			events = append(events, e)
		}
	}
	// Each process writes its events together, so those of several are out of order, and a claim
	// may be answered before the publish, or noted before the promotion. Two that promote at once both say so.
	order := map[string]int{"published": -2, "promoted": -1}
	slices.SortStableFunc(events, func(a, b TraceEvent) int {
		return cmp.Or(cmp.Compare(a.AtMS, b.AtMS), cmp.Compare(order[a.Event], order[b.Event]))
	})
	// A write is noted by a process's idea of the store's clock, which may be ms ahead of the
	// script that settled the job after it.
	for i := range events {
		for ; i > 0 && events[i].Event == "written" && events[i-1].settles(events[i].Attempt); i-- {
			events[i].AtMS = events[i-1].AtMS
			events[i-1], events[i] = events[i], events[i-1]
		}
	}
	return slices.CompactFunc(events, func(a, b TraceEvent) bool {
		return a.Event == b.Event && a.Attempt == b.Attempt && (a.Event == "promoted" ||
			a.Event == "lapsed" || a.Event == Dead.String())
	}), nil
}
