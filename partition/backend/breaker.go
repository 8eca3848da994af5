package backend

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

const (
	// breakerThreshold is how many operations in a row must find the shard
	// unreachable before the breaker opens.
	breakerThreshold = 3
	// silentFor is how long calls of a shard may be under way, without an answer to any of them,
	// before the store asks whether the server is there. It is if it answers within answerWithin.
	silentFor, answerWithin = 400 * time.Millisecond, 300 * time.Millisecond
	// askAgain is the pause after a question that no connection was free for.
	askAgain = 50 * time.Millisecond
	// probeFirst is how soon the store probes an unreachable shard, and probeEvery how often it does
	// in the end: the pauses grow by a tenth of what the outage takes. After the server is back,
	// operations are rejected for about that long. probeTimeout is how long a probe waits for its
	// answer.
	probeFirst, probeEvery, probeTimeout = 100 * time.Millisecond, 500 * time.Millisecond, time.Second
)

// ErrUnreachable is the error of an operation that an open breaker rejects.
var ErrUnreachable = Wrap(ErrUnavailable,
	errors.New("the shard is unreachable; the store probes it twice a second"))

// A Breaker rejects operations on one shard while its server cannot be reached.
// Without it each operation waits until its timeout, and delays everything that
// shares a lane, a worker or a janitor round with it. It opens after three failures in a row, and
// before any call times out: after 0.4 s without an answer a short probe decides. While the breaker is open
// the store probes the shard itself, so no produce is sent just to find out
// whether the server is back, and ends with an unknown outcome.
type Breaker struct {
	failures atomic.Int32 // in a row
	open     atomic.Bool
	opened   atomic.Uint64 // how often
	moving   atomic.Int64  // when calls were rejected first because the slot moves, Unix ns
	counted  bool          // among the unreachable ones; of the prober
	backend  *Backend      // of the shard
	prober   *prober
	probe    func(context.Context) error // reads one field of the shard

	mu      sync.Mutex
	calls   int         // under way
	since   time.Time   // when the first of them was sent, or a call was answered since
	silence *time.Timer // calls b.silent while there are calls; nil before the first
	asking  bool        // whether the server is there
}

// NewBreaker is the breaker of a shard. It probes the field format of the shard's ledger.
func (b *Backend) NewBreaker(ledger string) *Breaker {
	return &Breaker{backend: b, prober: b.prober, probe: func(ctx context.Context) error {
		return b.Background.HGet(ctx, ledger, "format").Err()
	}}
}

// sent notes that a call is sent; answered that it ended.
func (b *Breaker) sent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls++; b.calls > 1 {
		return
	}
	b.since = time.Now()
	if b.silence == nil {
		b.silence = time.AfterFunc(b.backend.patience*silentFor, b.silent)
	} else {
		b.silence.Reset(b.backend.patience * silentFor)
	}
}

func (b *Breaker) answered(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if reachability(err) == reached {
		b.since = time.Now()
	}
	if b.calls--; b.calls == 0 && b.silence != nil {
		b.silence.Stop()
	}
}

// silent asks in the background whether the server is there, if no call was answered for silentFor.
func (b *Breaker) silent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls == 0 {
		return
	}
	if left := b.backend.patience*silentFor - time.Since(b.since); left > 0 {
		b.silence.Reset(left)
		return
	}
	if b.asking || !b.Allow() { // an open one is probed anyway
		return
	}
	b.asking = true
	since := b.since
	b.prober.run(func(ctx context.Context) { b.ask(ctx, since) })
}

// ask opens the breaker where the server does not answer and no call was answered since.
func (b *Breaker) ask(ctx context.Context, since time.Time) {
	asking, cancel := context.WithTimeout(ctx, b.backend.patience*answerWithin)
	defer cancel()
	found := reachability(Classify(b.probe(asking)))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asking = false
	switch {
	case found == unreached && b.since.Equal(since):
		b.failures.Store(breakerThreshold)
		if b.open.CompareAndSwap(false, true) {
			b.prober.opened(b)
		}
	case b.calls == 0:
	case found == unclear:
		b.silence.Reset(askAgain)
	default:
		b.silence.Reset(b.backend.patience * silentFor)
	}
}

// Allow is false while operations are rejected.
func (b *Breaker) Allow() bool { return !b.open.Load() }

// Suspect is true from the first failure until the shard answers again. Background
// work skips such a shard.
func (b *Breaker) Suspect() bool { return b.failures.Load() > 0 }

// Done records how an operation on the shard ended.
func (b *Breaker) Done(err error) {
	switch reachability(err) {
	case reached:
		if b.failures.Load() == 0 && b.Allow() {
			return
		}
		b.failures.Store(0)
		if b.open.CompareAndSwap(true, false) {
			b.prober.closed(b)
		}
	case unreached:
		if b.failures.Add(1) >= breakerThreshold && b.open.CompareAndSwap(false, true) {
			b.prober.opened(b)
		}
	}
}

// run probes until the breaker closes or ctx ends. Where it closed and opened again between two
// probes, the later opening probes alone.
func (b *Breaker) run(ctx context.Context, opening uint64) {
	began, next := time.Now(), time.NewTimer(probeFirst)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		pause := min(probeEvery, probeFirst+time.Since(began)/10)
		next.Reset(pause)
		if !b.open.Load() || b.opened.Load() != opening {
			return
		}
		probing, cancel := b.backend.Probing(ctx)
		b.Done(Classify(b.probe(probing)))
		cancel()
	}
}

// reach is what the result of an operation says about the server of the shard.
type reach int

const (
	unclear   reach = iota // nothing: the server was not asked, or the connection broke
	reached                // the server answered
	unreached              // no connection, no answer in time, or the server cannot serve the shard
)

// notServing are answers of a server that cannot serve the shard now.
var notServing = []string{"CLUSTERDOWN ", "MASTERDOWN ", "LOADING ", "ERR max number of clients reached"}

// reachability classifies an error of the store. An exhausted connection pool says
// nothing: the operations that hold its connections report for themselves.
func reachability(err error) reach {
	var (
		reply   redis.Error
		op      *net.OpError
		timeout net.Error
	)
	switch {
	case err == nil, errors.Is(err, ErrUnconfirmed):
		return reached
	case errors.Is(err, context.Canceled), errors.Is(err, redis.ErrPoolTimeout),
		errors.Is(err, redis.ErrPoolExhausted):
		return unclear
	case errors.As(err, &reply):
		for _, prefix := range notServing {
			if strings.HasPrefix(reply.Error(), prefix) {
				return unreached
			}
		}
		return reached
	case errors.As(err, &op) && op.Op == "dial", strings.Contains(err.Error(), noNodes),
		strings.Contains(err.Error(), noSentinels):
		return unreached
	case !errors.Is(err, ErrUnknown): // nothing was sent
		return unclear
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return unreached
	}
	return unclear
}

// A prober runs the probes of a store: one goroutine for each open breaker. It
// logs when the first breaker opens and when the last one closes.
type prober struct {
	outage   OutageLog
	returned func() // called when a shard is reachable again
	ctx      context.Context
	cancel   context.CancelFunc
	probes   sync.WaitGroup

	mu      sync.Mutex
	stopped bool
}

func newProber(log *zap.Logger, returned func()) *prober {
	ctx, cancel := context.WithCancel(context.Background())
	return &prober{
		outage: OutageLog{
			Log:   log,
			Level: zap.WarnLevel,
			Began: "shard unreachable, its entries are rejected",
			Ended: "all shards reachable again",
		},
		returned: returned,
		ctx:      ctx,
		cancel:   cancel,
	}
}

// count has the outage know of the breaker while it is open.
func (p *prober) count(b *Breaker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	unreachable := b.open.Load()
	switch {
	case unreachable == b.counted:
		return
	case unreachable:
		p.outage.Begin()
	default:
		p.outage.End()
	}
	b.counted = unreachable
}

func (p *prober) opened(b *Breaker) {
	p.count(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		opening := b.opened.Add(1)
		p.probes.Go(func() { b.run(p.ctx, opening) })
	}
}

// run runs f in a goroutine that stop waits for.
func (p *prober) run(f func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.probes.Go(func() { f(p.ctx) })
	}
}

func (p *prober) closed(b *Breaker) {
	p.count(b)
	p.returned()
}

// unreachable is the number of open breakers.
func (p *prober) unreachable() int { return p.outage.Failing() }

// stop ends the probes and waits for them.
func (p *prober) stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	p.cancel()
	p.probes.Wait()
}

// reachable rejects the calls whose shard is unreachable and returns the others.
func (b *Backend) reachable(calls []*Call) []*Call {
	for i, c := range calls {
		if c.breaker != nil && !c.breaker.Allow() {
			return b.dropRejected(calls, i)
		}
	}
	return calls
}

// dropRejected is reachable where the call at first is the first to be rejected.
func (b *Backend) dropRejected(calls []*Call, first int) []*Call {
	rest := append(make([]*Call, 0, len(calls)), calls[:first]...)
	for _, c := range calls[first:] {
		if c.breaker == nil || c.breaker.Allow() {
			rest = append(rest, c)
			continue
		}
		c.Err = ErrUnreachable
		b.metrics.failed(c.Err)
	}
	return rest
}

// reportToBreakers tells the breakers how calls ended. The failures of one pipeline
// count once per shard.
func reportToBreakers(calls []*Call) {
	var failed map[*Breaker]error
	for _, c := range calls {
		switch {
		case c.breaker == nil:
		case c.Err == nil:
			c.breaker.Done(nil)
		case failed == nil:
			failed = map[*Breaker]error{c.breaker: c.Err}
		default:
			failed[c.breaker] = c.Err
		}
	}
	for b, err := range failed {
		b.Done(err)
	}
}
