package redistest

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var shared struct {
	sync.Mutex
	users  int
	server *Server
	stop   func()
}

// Shared is the address of one server that all tests of this process use at
// the same time, each under key names of its own. It ends with its last user.
func Shared(tb testing.TB) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.users == 0 {
		// It outlives the test that starts it, so neither its folder nor its
		// end may hang on that one.
		dir, err := os.MkdirTemp("", "redistest")
		if err != nil {
			tb.Fatal(err)
		}
		owner := &lasting{TB: tb}
		shared.server = start(owner, FreeAddr(tb), dir, nil)
		shared.stop = func() { owner.end(); _ = os.RemoveAll(dir) }
	}
	shared.users++
	tb.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.users--; shared.users == 0 {
			shared.stop()
		}
	})
	return shared.server.Addr
}

// SharedClient is a client of the Shared server, closed when the test ends. It waits for an answer
// as long as a busy machine may take: nobody stalls that server.
func SharedClient(tb testing.TB) *redis.Client {
	tb.Helper()
	c := redis.NewClient(&redis.Options{Addr: Shared(tb), MaxRetries: -1, DisableIdentity: true, ReadTimeout: time.Minute})
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// lasting keeps the cleanups of a test until it is told to end.
type lasting struct {
	testing.TB
	cleanups []func()
}

func (l *lasting) Cleanup(f func()) { l.cleanups = append(l.cleanups, f) }

func (l *lasting) end() {
	for _, f := range l.cleanups {
		f()
	}
}

// Until asks ok again and again until it is true, and fails the test when that
// takes longer than limit. It returns how long it took.
func Until(tb testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	tb.Helper()
	began := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(began) > limit {
			tb.Fatalf("after %v still not: %s", limit, what)
		}
		<-tick.C
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
