package jobs

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/share"
)

// flushes holds the flushes of an engine on a fake store until step lets the next run, and
// tells which namespaces each publishes for, and in how many bytes.
type flushes struct {
	began chan map[string]int
	runs  chan struct{}
}

func holdFlushes(t *testing.T, s *fakeStore) *flushes {
	f := &flushes{make(chan map[string]int), make(chan struct{})}
	over := make(chan struct{})
	t.Cleanup(func() { close(over) }) // a test that failed must not hold up Stop
	s.With(func() {
		s.flies = func(b *job.Batch) {
			bytes := map[string]int{}
			for _, p := range b.Publishes {
				bytes[p.Namespace.Name] += publishBytes(p)
			}
			select {
			case f.began <- bytes:
			case <-over:
				return
			}
			select {
			case <-f.runs:
			case <-over:
			}
		}
	})
	return f
}

// startTwo runs an engine of two namespaces.
func startTwo(t *testing.T) (*fakeStore, *Engine, *job.Namespace, *job.Namespace) {
	t.Helper()
	s := newFake(t, map[string]job.Policy{"noisy": job.DefaultPolicy(), "calm": job.DefaultPolicy()})
	e := start(t, s)
	return s, e, s.Namespace("noisy"), s.Namespace("calm")
}

// queued waits until the lane of a publish holds n more works than its flush.
func queued(t *testing.T, l *lane, n int) {
	t.Helper()
	eventually(t, "the work is queued", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) == n
	})
}

func TestAFlushIsSharedByTheNamespacesThatWait(t *testing.T) {
	t.Parallel()
	s, e, noisy, calm := startTwo(t)
	f := holdFlushes(t, s)
	var callers sync.WaitGroup
	send := func(ns *job.Namespace, bytes int) {
		callers.Go(func() { publish(t, e, ns, "q", strings.Repeat("x", bytes)) })
	}
	send(noisy, 200)
	<-f.began
	const backlog = 100
	l := e.laneOf(noisy, "q")
	for range backlog {
		send(noisy, largePublish-recordOverhead-1)
	}
	queued(t, l, backlog)
	for range 3 {
		send(calm, 200)
	}
	queued(t, l, backlog+3)
	f.runs <- struct{}{}
	for left, n := backlog*(largePublish-1), 0; left > 0; n++ {
		flush := <-f.began
		if n == 0 && flush["calm"] != 3*(200+recordOverhead) {
			t.Errorf("the first flush behind the backlog has %d bytes of the other namespace", flush["calm"])
		}
		if n > 0 && flush["calm"] != 0 || flush["noisy"] > maxFlushBytes {
			t.Errorf("flush %d: %v", n, flush)
		}
		left -= flush["noisy"]
		f.runs <- struct{}{}
	}
	callers.Wait()
}

// Two connections keep a flush flying and one work waiting, each of which fills a flush.
func TestNobodyStarvesBesideANamespaceThatFillsEveryFlush(t *testing.T) {
	t.Parallel()
	s, e, noisy, calm := startTwo(t)
	f := holdFlushes(t, s)
	var callers sync.WaitGroup
	send := func(ns *job.Namespace, bytes int) {
		callers.Go(func() { publish(t, e, ns, "q", strings.Repeat("x", bytes)) })
	}
	zone := e.zoneOf(noisy, "q")
	large := zone[len(zone)-1]
	send(noisy, maxLargeFlushBytes)
	<-f.began
	const backlog = 8
	for range backlog {
		send(calm, 1<<20)
	}
	queued(t, large, backlog)
	send(noisy, maxLargeFlushBytes)
	queued(t, large, backlog+1)
	left := backlog << 20
	for range 2 * backlog {
		f.runs <- struct{}{}
		if flush := <-f.began; flush["calm"] > 0 {
			left -= flush["calm"]
		} else {
			send(noisy, maxLargeFlushBytes)
			queued(t, large, 1)
		}
	}
	if left > 0 {
		t.Errorf("after %d flushes %d bytes of the other namespace wait", 2*backlog, left)
	}
	s.With(func() { s.flies = nil })
	close(f.runs)
	go func() {
		for range f.began {
		}
	}()
	callers.Wait()
	close(f.began)
}

// A namespace that was served much waits for others that come again and again.
func TestWorkBehindOtherNamespacesIsRejectedInTime(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := &lane{engine: &Engine{cfg: Config{FlushTimeout: time.Second}}, maxBytes: maxFlushBytes, waiting: share.NewQueue[*work]()}
	waits := func(namespace string, since time.Duration) *error {
		p := &job.Publish{}
		l.waiting.Push(namespace, &work{
			batch: job.Batch{Publishes: []*job.Publish{p}}, namespace: namespace, bytes: maxFlushBytes, queued: now.Add(-since), done: func() {},
		})
		return &p.Err
	}
	waits("served", 0)
	l.waiting.Next()
	l.waiting.Pop(maxFlushBytes)
	late, inTime := waits("served", 3*time.Second), waits("served", time.Second)
	next := waits("other", 0)
	l.fill(now)
	if len(l.flying) != 1 || l.flying[0].namespace != "other" || *next != nil || *inTime != nil || *late != ErrOverloaded {
		t.Errorf("in the flush: %d; errors %v, %v, %v", len(l.flying), *next, *inTime, *late)
	}
}

// A flush has room for four claims of 1000 that find as many jobs, and for all that find none.
func TestClaimsTakeOfAFlushWhatTheyGet(t *testing.T) {
	t.Parallel()
	const many = 32
	for got, want := range map[int]int{0: 2, job.MaxCount: 1 + many/4} {
		s := newFake(t, nil)
		e := start(t, s)
		ns := s.Namespace("mail")
		var callers sync.WaitGroup
		claim := func() {
			callers.Go(func() {
				if jobs, err := e.Claim(&Claim{Namespace: ns, Queues: []string{"q"}, TTR: time.Minute, Count: job.MaxCount}); err != nil || len(jobs) != got {
					t.Errorf("%d jobs, %v", len(jobs), err)
				}
			})
		}
		for range many + 2 {
			publish(t, e, ns, "q", make([]string, got)...)
		}
		claim()
		callers.Wait()
		s.With(func() { s.runs = 0 })
		f := holdFlushes(t, s)
		claim()
		<-f.began
		for range many {
			claim()
		}
		queued(t, e.laneOf(ns, "q"), many)
		s.With(func() { s.flies = nil })
		f.runs <- struct{}{}
		callers.Wait()
		if s.runs != want {
			t.Errorf("%d claims that get %d jobs fly in %d flushes, want %d", 1+many, got, s.runs, want)
		}
	}
}

// A claim that finds nothing in a shard asks the next one with the others of its flush.
func TestClaimsOverShardsShareEachFlush(t *testing.T) {
	t.Parallel()
	const many, shards = 32, 4
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread = shards, map[string]int{"q": shards}
	s := newFake(t, map[string]job.Policy{"mail": policy})
	e := start(t, s)
	ns := s.Namespace("mail")
	var callers sync.WaitGroup
	claim := func() {
		callers.Go(func() {
			if jobs, err := e.Claim(&Claim{Namespace: ns, Queues: []string{"q"}, TTR: time.Minute, Count: 1}); err != nil || len(jobs) > 0 {
				t.Errorf("%d jobs, %v", len(jobs), err)
			}
		})
	}
	f := holdFlushes(t, s)
	claim()
	<-f.began
	for range many {
		claim()
	}
	queued(t, e.laneOf(ns, "q"), many)
	s.With(func() { s.flies = nil })
	f.runs <- struct{}{}
	callers.Wait()
	if runs, claims := s.ran(); runs != 1+shards || claims != (1+many)*shards {
		t.Errorf("%d claims of %d shards are %d claims in %d flushes, want %d", 1+many, shards, claims, runs, 1+shards)
	}
}

func TestSmallWorkDoesNotWaitForALargePublish(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{"its own namespace": "calm", "another": "noisy"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, e, _, calm := startTwo(t)
			began, release := make(chan struct{}), make(chan struct{})
			s.With(func() {
				s.flies = func(b *job.Batch) {
					if len(b.Publishes) > 0 && publishBytes(b.Publishes[0]) >= largePublish {
						close(began)
						<-release
					}
				}
			})
			var callers sync.WaitGroup
			callers.Go(func() { publish(t, e, s.Namespace(first), "large", strings.Repeat("x", 16<<20)) })
			<-began
			free := freeLater(t, release, "small work waits for the large publish")
			for _, queue := range []string{"large", "a", "b", "c", "d"} { // of every lane
				publish(t, e, calm, queue, "small")
				got, err := e.Claim(&Claim{Namespace: calm, Queues: []string{queue}, Count: 1, TTR: time.Minute})
				if err != nil || payloads(got) != "small" {
					t.Fatalf("got %q %v", payloads(got), err)
				}
				e.Ack(&job.Ack{Namespace: calm, Queue: queue, Ref: got[0].Ref})
			}
			free()
			callers.Wait()
			if ready, _ := s.ready("large"); ready != 1 {
				t.Errorf("%d large jobs are ready", ready)
			}
		})
	}
}

// freeLater closes release after 20 s, which is an error: it says what waits till then. The
// function that it returns closes it at once.
func freeLater(t *testing.T, release chan struct{}, waits string) (free func()) {
	closeIt := sync.OnceFunc(func() { close(release) })
	late := time.AfterFunc(20*time.Second, func() {
		t.Error(waits)
		closeIt()
	})
	return func() {
		late.Stop()
		closeIt()
	}
}

func TestSmallWorkDoesNotWaitForClaimsOfLargeJobs(t *testing.T) {
	t.Parallel()
	s, e, noisy, calm := startTwo(t)
	claim := func(ns *job.Namespace, queue string) string {
		got, err := e.Claim(&Claim{Namespace: ns, Queues: []string{queue}, Count: 1, TTR: time.Minute})
		if err != nil || len(got) != 1 {
			t.Fatalf("got %d jobs, %v", len(got), err)
		}
		return string(got[0].Payload)
	}
	large := strings.Repeat("x", largePublish)
	publish(t, e, noisy, "q", large, large, "small", "small")
	claim(noisy, "q") // now its jobs are known to be large
	began, release := make(chan struct{}), make(chan struct{})
	s.With(func() {
		s.flies = func(b *job.Batch) {
			if len(b.Claims) > 0 && b.Claims[0].Namespace.Name == "noisy" {
				began <- struct{}{}
				<-release
			}
		}
	})
	var callers sync.WaitGroup
	callers.Go(func() { claim(noisy, "q") })
	<-began
	free := freeLater(t, release, "small work waits for the claim of a large job")
	for _, queue := range []string{"q", "a", "b", "c", "d"} { // of every lane
		publish(t, e, calm, queue, "small")
		claim(calm, queue)
	}
	free()
	callers.Wait()
	s.With(func() { s.flies = nil })
	claim(noisy, "q")
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last["noisy"].large {
		t.Error("after a small job its claims still fly with the large")
	}
}

func TestALargePublishOfOneNamespaceDoesNotWaitForAllOfAnother(t *testing.T) {
	t.Parallel()
	s, e, noisy, calm := startTwo(t)
	f := holdFlushes(t, s)
	var callers sync.WaitGroup
	send := func(ns *job.Namespace, bytes int) {
		callers.Go(func() { publish(t, e, ns, "q", strings.Repeat("x", bytes)) })
	}
	send(noisy, 5<<20)
	<-f.began
	zone := e.zoneOf(noisy, "q")
	for range 8 {
		send(noisy, 5<<20)
	}
	queued(t, zone[len(zone)-1], 8)
	send(calm, 1<<20)
	queued(t, zone[len(zone)-1], 9)
	f.runs <- struct{}{}
	for n, left := 1, 9; left > 0; n++ {
		flush := <-f.began
		switch {
		case flush["calm"] > 0 && n > 2:
			t.Errorf("flush %d has the publish of the other namespace", n)
		case flush["calm"] > 0 && flush["noisy"] > 0 || flush["noisy"] > 6<<20:
			t.Errorf("a flush has %v", flush)
		}
		left--
		f.runs <- struct{}{}
	}
	callers.Wait()
}
