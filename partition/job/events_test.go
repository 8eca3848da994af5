package job

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
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

// hold is memory without a bound.
func hold(int) func() { return func() {} }

func TestTheMemoryOfAFeedIsHeldUntilItsLastListenerLeaves(t *testing.T) {
	t.Parallel()
	s := openStore(t, "embedded:", nil)
	ns := s.Namespace("mail")
	e := NewEvents(s)
	if e.Listen(ns, nil, func(int) func() { return nil }) != nil || len(e.of) != 0 || ns.Heard() {
		t.Error("it listens without memory")
	}
	held := 0
	take := func(n int) func() {
		held += n
		return func() { held -= n }
	}
	first, second := e.Listen(ns, nil, take), e.Listen(ns, nil, take)
	if held != feedBytes {
		t.Errorf("two hold %d", held)
	}
	first.Close()
	if held != feedBytes {
		t.Errorf("the second holds %d", held)
	}
	second.Close()
	if held != 0 {
		t.Errorf("nobody holds %d", held)
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
	l := e.Listen(ns, []string{"q"}, hold)
	defer l.Close()
	redistest.Until(t, 10*time.Second, "it hears", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.of["mail"].subscribed.Load()
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

// Texts that are not delivered yet have a bound, of a namespace and in all. What is beyond is counted, in
// one event for each namespace.
func TestTextsThatWaitHaveABound(t *testing.T) {
	t.Parallel()
	var q eventQueue
	q.init()
	text := strings.Repeat("q acked {}\n", 1000)
	const times = 200 // 2.2 MB
	for range times {
		for _, ns := range []string{"a", "b", "c", "d", "e", "f"} {
			q.add(WakeEvent{Kind: WakeHeard, Namespace: ns, Queue: eventsQueue, Text: text})
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	lines, dropped, notes, held := map[string]int{}, map[string]int{}, 0, 0
	q.add(WakeEvent{Kind: WakeMoved})
	q.deliver(ctx, func(e WakeEvent) {
		switch {
		case e.Kind == WakeMoved:
			cancel()
		case e.Text != "":
			held += len(e.Text)
			lines[e.Namespace] += strings.Count(e.Text, "\n")
		default:
			dropped[e.Namespace] += e.Count
			notes++
		}
	})
	if held > maxTexts || held < maxTexts-6*len(text) || notes != 6 {
		t.Errorf("%d bytes were held, %d notes", held, notes)
	}
	for ns, n := range dropped {
		if n+lines[ns] != times*1000 || lines[ns]*len(text)/1000 > maxTextsOf {
			t.Errorf("%s: %d lines, %d dropped", ns, lines[ns], n)
		}
	}
	if q.texts != 0 || len(q.held) != 0 {
		t.Errorf("once delivered: %d, %v", q.texts, q.held)
	}
}

func TestWhoReadsEventsWaitsForNoOtherNamespace(t *testing.T) {
	t.Parallel()
	s := openStore(t, "embedded:", nil)
	e := NewEvents(s)
	l := e.Listen(s.Namespace("mail"), nil, hold)
	defer l.Close()
	l.feed.add("q acked {}\n")
	e.mu.Lock() // as somebody does who begins to listen to another
	defer e.mu.Unlock()
	read := make(chan string, 1)
	go func() {
		word, _, _ := l.Next()
		read <- word
	}()
	select {
	case word := <-read:
		if word != "acked" {
			t.Errorf("got %q", word)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it waits")
	}
}

// While nothing is subscribed nobody is told that it is ready, and what moves elsewhere concerns nobody here.
func TestReadyIsSaidOnlyOfWhatIsSubscribed(t *testing.T) {
	t.Parallel()
	s := openStore(t, "embedded:", nil)
	ns := s.Namespace("mail")
	e := NewEvents(s) // not started: the test tells it what it hears
	first := e.Listen(ns, nil, hold)
	defer first.Close()
	first.feed.since = time.Now().Add(-time.Hour)
	shard := ns.newest()[0].Number
	words := func(l *Listener) (all []string) {
		for word, _, ok := l.Next(); ok; word, _, ok = l.Next() {
			all = append(all, word)
		}
		return all
	}
	subscribed := WakeEvent{Kind: WakeSubscribed, Namespace: "mail", Shard: shard, Queue: eventsQueue}
	e.hear(subscribed)
	e.hear(WakeEvent{Kind: WakeMoved})
	if got := words(first); !slices.Equal(got, []string{"ready"}) {
		t.Errorf("another namespace moved: got %v", got)
	}
	e.hear(WakeEvent{Kind: WakeLost})
	second := e.Listen(ns, nil, hold)
	defer second.Close()
	elsewhere := subscribed
	elsewhere.Shard++
	e.hear(elsewhere)
	if one, two := words(first), words(second); !slices.Equal(one, []string{"dropped"}) || two != nil {
		t.Errorf("lost: got %v, %v", one, two)
	}
	e.hear(subscribed)
	if one, two := words(first), words(second); one != nil || !slices.Equal(two, []string{"ready"}) {
		t.Errorf("subscribed again: got %v, %v", one, two)
	}
	first.feed.shard++
	e.hear(WakeEvent{Kind: WakeMoved})
	if got := words(first); !slices.Equal(got, []string{"dropped"}) || first.feed.shard != shard || first.feed.subscribed.Load() {
		t.Errorf("it moved itself: got %v", got)
	}
}
