package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/clocktest"
)

var (
	errRejected = Classify(&net.OpError{Op: "dial", Err: errors.New("connection refused")})
	errNoAnswer = Classify(&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded})
)

// newBreaker is a breaker whose probes end as answer says.
func newBreaker(t *testing.T, answer func() error) (b *Breaker, returns *atomic.Int64) {
	returns = &atomic.Int64{}
	p := newProber(zap.NewNop(), func() { returns.Add(1) })
	t.Cleanup(p.stop)
	return &Breaker{prober: p, backend: &Backend{patience: 1}, probe: func(context.Context) error { return answer() }}, returns
}

func TestABreakerOpensAfterAFewFailuresInARowAndClosesAtTheFirstAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		var probes atomic.Int64
		b, returns := newBreaker(t, func() error {
			probes.Add(1)
			if up.Load() {
				return redis.Nil // the field is not there; the server is
			}
			return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		})
		b.Done(errNoAnswer)
		b.Done(errRejected)
		b.Done(nil) // not in a row
		b.Done(errNoAnswer)
		b.Done(errRejected)
		if !b.Allow() || !b.Suspect() {
			t.Error("open, or not suspect, after two failures")
		}
		b.Done(errRejected)
		b.Done(errRejected) // sent before it opened
		if b.Allow() || b.prober.unreachable() != 1 {
			t.Errorf("closed after three failures, %d unreachable", b.prober.unreachable())
		}
		clocktest.Pass(time.Minute)
		before := probes.Load()
		clocktest.Pass(10 * probeEvery)
		if n := probes.Load() - before; n != 10 || before < 120 || b.Allow() {
			t.Errorf("%d probes in the first minute, then %d in ten intervals; allow %v", before, n, b.Allow())
		}
		before = probes.Load()
		up.Store(true)
		clocktest.Pass(probeEvery)
		if !b.Allow() || b.Suspect() || b.prober.unreachable() != 0 || returns.Load() != 1 {
			t.Errorf("one interval after the server is back: allow %v, %d unreachable, returned %d times", b.Allow(), b.prober.unreachable(), returns.Load())
		}
		clocktest.Pass(time.Minute)
		if n := probes.Load() - before; n > 1 {
			t.Errorf("%d probes: they go on although the server is back", n)
		}
	})
}

func TestABreakerOpensBeforeACallTimesOutAndClosesSoonAfterTheServerIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProber(zap.NewNop(), func() {})
		defer p.stop()
		up := make(chan struct{})
		b := &Breaker{prober: p, backend: &Backend{patience: 1}, probe: func(ctx context.Context) error {
			select {
			case <-up:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		b.sent()
		clocktest.Pass(silentFor + answerWithin - time.Millisecond)
		if !b.Allow() {
			t.Error("open before the question was answered")
		}
		clocktest.Pass(2 * time.Millisecond)
		if b.Allow() {
			t.Error("closed although neither a call nor the question was answered")
		}
		clocktest.Pass(time.Second)
		close(up)
		clocktest.Pass(3 * probeFirst)
		if !b.Allow() {
			t.Errorf("open %v after the server was back", 3*probeFirst)
		}
		b.answered(errNoAnswer)
	})
}

func TestASlowCallOpensNoBreakerWhileTheServerAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func() error{
		"the probe":                           func() error { return redis.Nil },
		"nothing said, no connection is free": func() error { return redis.ErrPoolTimeout },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, _ := newBreaker(t, answer)
				b.sent()
				clocktest.Pass(time.Minute)
				if !b.Allow() {
					t.Error("open")
				}
				b.answered(nil)
				synctest.Wait()
			})
		})
	}
	t.Run("other calls", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			asked := false
			b, _ := newBreaker(t, func() error { asked = true; return errNoAnswer })
			b.sent()
			for range 100 {
				b.sent()
				clocktest.Pass(silentFor / 2)
				b.answered(nil)
			}
			if asked {
				t.Error("asked although calls are answered")
			}
			b.answered(nil)
		})
	})
}

func TestAProbeThatHangsIsGivenUpAndRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProber(zap.NewNop(), func() {})
		defer p.stop()
		var probes atomic.Int64
		b := &Breaker{prober: p, backend: &Backend{patience: 1}, probe: func(ctx context.Context) error {
			probes.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}}
		for range breakerThreshold {
			b.Done(errNoAnswer)
		}
		clocktest.Pass(10 * probeTimeout)
		if n := probes.Load(); n < 9 || b.Allow() {
			t.Errorf("%d probes in ten times their timeout, allow %v", n, b.Allow())
		}
		b.Done(nil) // the answer to an operation from before closes it too
		if !b.Allow() {
			t.Error("open although the server answered")
		}
	})
}

func TestOnlyAServerThatCannotBeReachedOpensABreaker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		want reach
	}{
		{"no error", nil, reached},
		{"rejected dial", errRejected, unreached},
		{"read timeout", errNoAnswer, unreached},
		{"deadline of the caller, after sending", Classify(context.DeadlineExceeded), unreached},
		{"deadline of the caller, before sending", &storeError{ErrUnavailable, context.DeadlineExceeded}, unclear},
		{"canceled by the caller", Classify(context.Canceled), unclear},
		{"broken connection", Classify(io.EOF), unclear},
		{"no free connection in time", Classify(redis.ErrPoolTimeout), unclear},
		{"no free connection", Classify(redis.ErrPoolExhausted), unclear},
		{"closed client", Classify(redis.ErrClosed), unclear},
		{"rejected by the breaker itself", ErrUnreachable, unclear},
		{"no node known", Classify(errors.New(noNodes)), unreached},
		{"no sentinel", Classify(fmt.Errorf("%s: %w", noSentinels, io.EOF)), unreached},
		{"too few replicas", &storeError{ErrUnknown, ErrUnconfirmed}, reached},
		{"CLUSTERDOWN", Classify(AnsweredError("CLUSTERDOWN The cluster is down")), unreached},
		{"MASTERDOWN", Classify(AnsweredError("MASTERDOWN Link with MASTER is down")), unreached},
		{"LOADING", Classify(AnsweredError("LOADING Redis is loading the dataset in memory")), unreached},
		{"max clients", Classify(AnsweredError("ERR max number of clients reached")), unreached},
		{"NOSCRIPT", Classify(AnsweredError("NOSCRIPT No matching script. Please use EVAL.")), reached},
		{"OOM", Classify(AnsweredError("OOM command not allowed when used memory > 'maxmemory'.")), reached},
		{"READONLY", Classify(AnsweredError("READONLY You can't write against a read only replica.")), reached},
		{"WRONGTYPE", Classify(AnsweredError("WRONGTYPE Operation against a key holding the wrong kind of value")), reached},
		{"TRYAGAIN", Classify(AnsweredError("TRYAGAIN Multiple keys request during rehashing of slot")), reached},
	} {
		if got := reachability(c.err); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

// An answer that comes between the last failure and the opening must not leave a
// breaker that no later answer closes.
func TestABreakerThatOpensWhileItIsAnsweredClosesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := newBreaker(t, func() error { return nil })
		for range breakerThreshold {
			b.failures.Add(1)
		}
		b.Done(nil)
		if b.open.CompareAndSwap(false, true) { // the failure goes on where it was
			b.prober.opened(b)
		}
		clocktest.Pass(2 * probeEvery)
		if !b.Allow() {
			t.Error("it is open, though every probe is answered")
		}
	})
}

func TestABreakerThatClosesAndOpensBetweenTwoProbesIsProbedOnce(t *testing.T) {
	t.Parallel()
	probesAfter := func(closings int) (probes int) {
		synctest.Test(t, func(t *testing.T) {
			b, _ := newBreaker(t, func() error { probes++; return errRejected })
			for range closings {
				for range breakerThreshold {
					b.Done(errRejected)
				}
				clocktest.Pass(probeFirst / 10)
				b.Done(nil)
			}
			for range breakerThreshold {
				b.Done(errRejected)
			}
			clocktest.Pass(10 * probeEvery)
			b.prober.stop()
		})
		return probes
	}
	if once, again := probesAfter(0), probesAfter(3); again != once || once < 10 {
		t.Errorf("%d probes after several openings, %d after one", again, once)
	}
}
