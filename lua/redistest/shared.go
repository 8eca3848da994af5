package redistest

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// sharing is something that all tests of this process use at the same time. It ends with its last user.
type sharing[T any] struct {
	mu    sync.Mutex
	users int
	it    T
	owner *lasting
}

func (s *sharing[T]) use(tb testing.TB, start func(testing.TB) T) T {
	tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		s.owner = &lasting{TB: tb}
		s.it = start(s.owner)
	}
	s.users++
	tb.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users == 0 {
			s.owner.end()
		}
	})
	return s.it
}

var (
	sharedServer  sharing[*Server]
	sharedMasters sharing[*Cluster]
)

// Shared is the address of one server that all tests of this process use at
// the same time, each under key names of its own. It ends with its last user.
func Shared(tb testing.TB) string {
	tb.Helper()
	return sharedServer.use(tb, func(tb testing.TB) *Server { return Start(tb) }).Addr
}

// SharedMasters is a cluster of three masters that tests use as the Shared server: nobody stalls
// one, moves a slot or sets anything.
func SharedMasters(tb testing.TB) *Cluster {
	tb.Helper()
	return sharedMasters.use(tb, func(tb testing.TB) *Cluster { return StartMasters(tb, 3) })
}

// SharedClient is a client of the Shared server, closed when the test ends. It waits for an answer
// as long as a busy machine may take: nobody stalls that server.
func SharedClient(tb testing.TB) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{Addr: Shared(tb), MaxRetries: -1, DisableIdentity: true, ReadTimeout: time.Minute})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// lasting outlives the test that makes it: its folders and cleanups wait until it is told to end.
type lasting struct {
	testing.TB
	cleanups []func()
}

func (l *lasting) Cleanup(f func()) { l.cleanups = append(l.cleanups, f) }

func (l *lasting) TempDir() string {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (l *lasting) end() {
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
}

// Until asks ok again and again until it is true, and fails the test when that
// takes longer than limit. It returns how long it took. The longer that or an answer takes, the more
// rarely it asks, because an answer often costs several processes more than what is awaited.
func Until(tb testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	tb.Helper()
	began := time.Now()
	for asked := began; !ok(); asked = time.Now() {
		took := time.Since(began)
		if took > limit {
			tb.Fatalf("after %v still not: %s", limit, what)
		}
		<-time.After(min(max(took/8, 2*time.Since(asked), 5*time.Millisecond), 100*time.Millisecond))
	}
	return time.Since(began)
}

// info reads one INFO section of a server into its fields.
func info(c *redis.Client, section string) map[string]string {
	fields := map[string]string{}
	text, _ := c.Info(context.Background(), section).Result()
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
