package job

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

func TestNothingIsMadeOfEventsWhileNobodyListens(t *testing.T) { // allocations are those of the process
	s := openStore(t, "embedded:", nil)
	ns := s.Namespace("mail")
	settle := &Settle{Namespace: ns, Queue: "q", Verb: Nack, State: Ready, Error: "away", Ref: Ref{Seq: 1}}
	queues := []string{"q"}
	if n := testing.AllocsPerRun(100, func() {
		s.note(ns, "q", Ref{Seq: 1, CallerID: "order-1"}, TraceEvent{Event: "acked", said: said{result: "42"}})
		s.notePublished(ns, "q", "web", Ref{Seq: 1}, 100)
		s.noteSettled(settle, 1)
		s.emitCount(ns, queues, 3, "expired", 1)
	}); n != 0 || s.events.of != nil {
		t.Errorf("%v allocations, %v", n, s.events.of)
	}
	select {
	case <-s.traced.wake:
		t.Error("the tracer is woken")
	default:
	}
}

// What does not fit, or the store does not take, is counted, and told with what comes next.
func TestEventsThatAreDroppedAreTold(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	ns := s.Namespace("mail")
	e := NewEvents(s)
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	l := e.Listen(ns, []string{"q"}, 1)
	defer l.Close()
	if e.Listen(ns, nil, 1) != nil {
		t.Error("a second one, where one may listen")
	}
	redistest.Until(t, 10*time.Second, "it hears", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.of["mail"].subscribed
	})
	const emitted = 10_000
	emit := func(queue string, n int) {
		for range n {
			s.emit(ns, queue, Ref{Seq: 1}, 0, TraceEvent{Event: "acked"})
		}
	}
	away := openStore(t, "redis://127.0.0.1:1", nil)
	for range 10 {
		away.emit(away.Namespace("mail"), "q", Ref{Seq: 1}, 0, TraceEvent{Event: "acked"})
	}
	away.events.send(away)
	if u := away.events.of["mail"]; u == nil || u.dropped != 10 || len(u.text) != 0 {
		t.Errorf("while the store is away: %+v", u)
	}
	emit("q", emitted)
	s.events.send(s)
	emit("other", 1)
	emit("q", 1)
	s.events.send(s)
	got, dropped := 0, 0
	redistest.Until(t, 10*time.Second, "all is told", func() bool {
		for word, data, ok := l.Next(); ok; word, data, ok = l.Next() {
			var of struct{ Count int }
			switch err := json.Unmarshal([]byte(data), &of); {
			case err != nil:
				t.Fatalf("%v in %s", err, data)
			case word == "dropped":
				dropped += of.Count
			case word == "acked":
				got++
			}
		}
		return got+dropped >= emitted+1
	})
	if got+dropped != emitted+1 || dropped == 0 || got < 1000 {
		t.Errorf("got %d, %d dropped", got, dropped)
	}
}
