package job

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/lifecycletest"
)

var prefixes atomic.Int64

// openStore is a store with the namespace mail.
func openStore(t *testing.T, url string, edit func(*Policy)) *Store {
	t.Helper()
	p := DefaultPolicy()
	if edit != nil {
		edit(&p)
	}
	b := backendtest.Open(t, backend.Config{URL: url})
	s, err := Open(Config{Prefix: fmt.Sprint("in", prefixes.Add(1)), Volatile: true, Namespaces: map[string]Policy{"mail": p}}, b, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Check(t.Context()) // else the first batch has 250 ms for it, which is little on a busy machine; some want a server that is away
	return s
}

// ear records the events of wakes.
type ear struct {
	mu     sync.Mutex
	events []WakeEvent
}

func (e *ear) on(event WakeEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, event)
}

// count is how many events of a kind came about a queue; empty: any.
func (e *ear) count(kind WakeKind, queue string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events {
		if event.Kind == kind && (queue == "" || event.Queue == queue) {
			n++
		}
	}
	return n
}

func (e *ear) until(t *testing.T, n int, kind WakeKind, queue string) {
	t.Helper()
	redistest.Until(t, 10*time.Second, fmt.Sprintf("%d events of kind %d about %q", n, kind, queue), func() bool { return e.count(kind, queue) >= n })
}

func startWakes(t *testing.T, s *Store) (*Wakes, *ear) {
	t.Helper()
	e := &ear{}
	w := newWakes(s, e.on)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w, e
}

func publishOne(t *testing.T, s *Store, queue string) {
	t.Helper()
	ns := s.Namespace("mail")
	p := &Publish{Namespace: ns, Queue: queue, Shard: ns.Shards(queue)[0], Tries: 1, Messages: []Message{{Payload: []byte("x")}}}
	redistest.Until(t, 10*time.Second, "publish", func() bool {
		s.Run(t.Context(), s.NewLane(), &Batch{Publishes: []*Publish{p}})
		return p.Err == nil
	})
}

func TestWakesTellOfJobs(t *testing.T) {
	t.Parallel()
	urls := map[string]func(*testing.T) string{
		"embedded": func(*testing.T) string { return "embedded:" },
		"redis":    func(t *testing.T) string { return "redis://" + redistest.Shared(t) },
		"cluster":  func(t *testing.T) string { return redistest.StartMasters(t, 3).URL() },
	}
	for name, url := range urls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, url(t), func(p *Policy) { p.Shards = 6 })
			ns := s.Namespace("mail")
			w, e := startWakes(t, s)
			queues := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
			for _, q := range queues {
				w.Want(ns, ns.Shards(q)[0], q)
			}
			for _, q := range queues {
				e.until(t, 1, WakeSubscribed, q)
				publishOne(t, s, q)
				e.until(t, 1, WakeHeard, q)
			}
			w.Want(ns, ns.Shards("a")[0], "a")
			e.until(t, 2, WakeSubscribed, "a")
			publishOne(t, s, "a") // the list has a job already: nobody is told
			publishOne(t, s, "nobody")
			if e.count(WakeHeard, "a") != 1 || e.count(WakeHeard, "nobody") != 0 || e.count(WakeLost, "") != 0 {
				t.Errorf("got %v", e.events)
			}
		})
	}
}

func TestAQueueStaysSubscribedForAWhile(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	ns := s.Namespace("mail")
	e := &ear{}
	w := newWakes(s, e.on)
	w.linger = time.Millisecond
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Stop(context.Background()) }()
	subscribers := func() int64 {
		channel := ns.shardAt(0).channel + "q"
		return s.backend.Out.PubSubNumSub(t.Context(), channel).Val()[channel]
	}
	w.Want(ns, 0, "q")
	w.Want(ns, 0, "other")
	e.until(t, 1, WakeSubscribed, "q")
	if n := subscribers(); n != 1 {
		t.Errorf("%d subscribers", n)
	}
	w.Unwant(ns, 0, "q")
	redistest.Until(t, 10*time.Second, "the subscription ends", func() bool { return subscribers() == 0 })
	w.Want(ns, 0, "q")
	e.until(t, 2, WakeSubscribed, "q")
	publishOne(t, s, "q")
	e.until(t, 1, WakeHeard, "q")
	w.Unwant(ns, 0, "q")
	w.Unwant(ns, 0, "q") // once too often
	if e.count(WakeLost, "") != 0 {
		t.Errorf("got %v", e.events)
	}
}

// A client may poll any names: what nobody wants any more is bounded.
func TestQueuesThatNobodyWantsAreBounded(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Shared(t), nil)
	ns := s.Namespace("mail")
	w, e := startWakes(t, s)
	w.Want(ns, 0, "kept")
	e.until(t, 1, WakeSubscribed, "kept")
	for i := range 3 * maxResting {
		q := fmt.Sprint("q", i)
		w.Want(ns, 0, q)
		if i%1000 == 0 {
			e.until(t, 1, WakeSubscribed, q)
		}
		w.Unwant(ns, 0, q)
	}
	redistest.Until(t, 10*time.Second, "the oldest are left", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.entries) <= maxResting+1
	})
	publishOne(t, s, "kept")
	e.until(t, 1, WakeHeard, "kept")
}

func TestALostConnectionIsToldAndReplaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openStore(t, server.URL(), nil)
	ns := s.Namespace("mail")
	w, e := startWakes(t, s)
	w.Want(ns, 0, "q")
	e.until(t, 1, WakeSubscribed, "q")
	server.Client().ClientKillByFilter(t.Context(), "type", "pubsub")
	e.until(t, 1, WakeLost, "")
	e.until(t, 2, WakeSubscribed, "q")
	server.Kill()
	e.until(t, 2, WakeLost, "")
	server.Launch()
	e.until(t, 3, WakeSubscribed, "q")
	publishOne(t, s, "q")
	e.until(t, 1, WakeHeard, "q")
}

func TestASilentConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openStore(t, server.URL(), nil)
	w, e := startWakes(t, s)
	w.Want(s.Namespace("mail"), 0, "q")
	e.until(t, 1, WakeSubscribed, "q")
	server.Signal(syscall.SIGSTOP)
	e.until(t, 1, WakeLost, "")
	server.Signal(syscall.SIGCONT)
	e.until(t, 2, WakeSubscribed, "q")
}

// While a server has a back-off, a queue that comes is looked at once, and one timer runs for all.
func TestQueuesOfAServerThatIsAwayAreNotLookedAtAgainForEachThatComes(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://127.0.0.1:1", nil)
	w, ns := newWakes(s, func(WakeEvent) {}), s.Namespace("mail")
	w.retry["127.0.0.1:1"] = time.Now().Add(time.Hour)
	var running sync.WaitGroup
	for i := range 100 {
		w.Want(ns, 0, fmt.Sprint("q", i))
		w.assign(t.Context(), &running)
		if len(w.fresh) > 0 || len(w.late) != i+1 || !w.timed {
			t.Fatalf("after %d queues %d are to be looked at and %d wait for a timer (%v)", i+1, len(w.fresh), len(w.late), w.timed)
		}
	}
	w.backOffEnds()
	if len(w.fresh) != 100 || w.timed {
		t.Errorf("%d queues are to be looked at after the back-off, want 100; a timer: %v", len(w.fresh), w.timed)
	}
}

func TestACallOfPromoteHasItsGroupsInOneOrder(t *testing.T) {
	t.Parallel()
	s := openStore(t, "embedded:", nil)
	ns := s.Namespace("mail")
	p := &page{place: place{ns, ns.shardAt(0)}, groups: map[string]*duePerQueue{"q": {[]string{"1"}, []string{"2"}, true}}}
	for range 50 {
		args := p.call(s, []string{"q"}).Args
		got, want := args[len(args)-11:], []any{1, "delay", 1, "1", 1, "lease", 1, "2", 1, "head", 0}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

func TestWakesFollowALifecycle(t *testing.T) {
	t.Parallel()
	s := openStore(t, "embedded:", nil)
	lifecycletest.Run(t, func(*testing.T) lifecycletest.Component { return newWakes(s, func(WakeEvent) {}) })
}

func TestThePromoterFollowsALifecycle(t *testing.T) {
	t.Parallel()
	s := openStore(t, "embedded:", nil)
	lifecycletest.Run(t, func(*testing.T) lifecycletest.Component { return NewPromoter(s) })
}
