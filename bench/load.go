package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Load says what to send. What may be left out says so.
type Load struct {
	URL       string // the data port: "http://host:port", or https
	Namespace string
	Token     string // sent as a bearer token; empty sends none

	// Rate is requests a second. 0 closes the loop: each connection sends when
	// its last request was answered, and latencies count from the sending. That
	// finds the most a server takes, and says nothing about how it feels.
	Rate     float64
	Duration time.Duration // how long requests are due; Rate × Duration of them
	Requests int64         // closed loop: ends it when this many are sent; 0 leaves that to Duration

	Prefix       string // of the partitions' names, before their number; "bench-" when empty
	Partitions   int    // request i goes to partition i modulo this
	Zipf         bool   // or to one by Zipf's law (exponent 1.1), the same at every run
	Entries      int    // a request; 1 is sent as a single event, more as NDJSON
	Mixed        bool   // the entries of a request name their partitions, scattered evenly over all; Zipf has no say
	Segment      bool   // the same as batches of Segment's SDKs, whose key is Namespace
	PayloadBytes int    // an entry; at least MinPayload

	Connections int // kept alive, one request in flight on each
	// Timeout of one request: its outcome is then unknown. One that could not
	// be sent this long after it was due is given up as rejected, "overdue", so
	// a hanging server ends the run instead of stretching it.
	Timeout time.Duration

	// Progress, if not nil, gets the counts so far once a second, in one call at a time.
	Progress func(Result)
}

// longestSleep bounds how late the end of ctx is noticed at very low rates.
const longestSleep = 100 * time.Millisecond

// Run sends the load and returns when every request has ended. The error is
// for a load that could not begin: unusable settings, no listener. Once it
// has begun, failures are counts of the Result; when ctx ends, so does the load.
func Run(ctx context.Context, l Load) (Result, error) {
	dial := (&net.Dialer{}).DialContext
	if strings.HasPrefix(l.URL, "https:") {
		dial = (&tls.Dialer{}).DialContext
	}
	return l.run(ctx, dial, sleep)
}

func (l Load) run(ctx context.Context, dial dialer, sleep func(time.Duration)) (Result, error) {
	target, err := l.validate()
	if err != nil {
		return Result{}, err
	}
	// Connections are up before the clock starts: clients keep theirs.
	conns := make([]*conn, l.Connections)
	for i := range conns {
		conns[i] = &conn{dial: dial, addr: target.Host, timeout: l.Timeout}
		defer conns[i].close()
		if err := conns[i].open(ctx); err != nil {
			return Result{}, fmt.Errorf("connect to %s: %w", target.Host, err)
		}
	}

	// Longest is a request that waits, connects and is answered, each at the
	// very end of its time.
	rec := newRecorder(3 * l.Timeout)
	build := newRequestBuilder(l, target.Host)
	start := time.Now()
	defer l.report(rec, start)()
	if l.Rate == 0 {
		l.closed(ctx, start, conns, build, rec)
		return rec.result(start), nil
	}
	due := func(i int64) time.Time {
		return start.Add(time.Duration(float64(i) / l.Rate * float64(time.Second)))
	}

	// Handing over a number blocks while every connection is busy. That delays
	// the sending, not the due time, so the wait is part of the latency.
	turns := make(chan int64)
	var workers sync.WaitGroup
	for _, c := range conns {
		workers.Go(func() {
			var request []byte
			for i := range turns {
				sent, out := time.Now(), allRejected("overdue", l.Entries)
				if sent.Sub(due(i)) <= l.Timeout {
					request = build.append(request[:0], i)
					out = c.exchange(ctx, request, l.Entries)
				}
				rec.add(due(i), sent, time.Now(), out)
			}
		})
	}
	pace(ctx, int64(l.Rate*l.Duration.Seconds()), due, sleep, turns)
	close(turns)
	workers.Wait()
	return rec.result(start), nil
}

// report calls Progress once a second until the returned function is called, which
// waits for the last call.
func (l Load) report(rec *recorder, start time.Time) (stop func()) {
	if l.Progress == nil {
		return func() {}
	}
	end := make(chan struct{})
	var calls sync.WaitGroup
	calls.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				l.Progress(rec.result(start))
			}
		}
	})
	return func() { close(end); calls.Wait() }
}

// closed keeps every connection busy until the load ends.
func (l Load) closed(ctx context.Context, start time.Time, conns []*conn, build *requestBuilder,
	rec *recorder) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for _, c := range conns {
		workers.Go(func() {
			var request []byte
			for ctx.Err() == nil {
				sent := time.Now()
				if sent.Sub(start) >= l.Duration {
					return
				}
				i := next.Add(1) - 1
				if l.Requests > 0 && i >= l.Requests {
					return
				}
				request = build.append(request[:0], i)
				out := c.exchange(ctx, request, l.Entries)
				rec.add(sent, sent, time.Now(), out)
			}
		})
	}
	workers.Wait()
}

// pace hands out 0 to total-1, none before it is due.
func pace(ctx context.Context, total int64, due func(int64) time.Time, sleep func(time.Duration),
	turns chan<- int64) {
	for i := range total {
		for wait := time.Until(due(i)); wait > 0 && ctx.Err() == nil; wait = time.Until(due(i)) {
			sleep(min(wait, longestSleep))
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case turns <- i:
		case <-ctx.Done():
			return
		}
	}
}

func (l Load) validate() (*url.URL, error) {
	target, err := url.Parse(l.URL)
	if err != nil {
		return nil, fmt.Errorf("parse url: %w", err)
	}
	closed := l.Rate == 0 && l.Duration > 0
	switch {
	case target.Scheme != "http" && target.Scheme != "https" || target.Port() == "":
		return nil, fmt.Errorf("url: %q is not usable: want http://host:port or https://host:port", l.URL)
	case l.Namespace == "":
		return nil, fmt.Errorf("namespace: empty; want a name")
	case !closed && l.Rate*l.Duration.Seconds() < 1:
		return nil, fmt.Errorf("rate × duration: %v/s for %v is not one request", l.Rate, l.Duration)
	case l.Partitions < 1 || l.Entries < 1 || l.Connections < 1:
		return nil, fmt.Errorf("partitions, entries, connections: %d, %d, %d; want 1 or more of each",
			l.Partitions, l.Entries, l.Connections)
	case l.PayloadBytes < MinPayload:
		return nil, fmt.Errorf("payload: %d bytes; want at least %d", l.PayloadBytes, MinPayload)
	case l.Segment && l.PayloadBytes < l.minSegmentPayload():
		return nil, fmt.Errorf("payload: %d bytes; want at least %d for Segment's events", l.PayloadBytes,
			l.minSegmentPayload())
	case l.Timeout <= 0:
		return nil, fmt.Errorf("timeout: %v; want more than 0", l.Timeout)
	}
	return target, nil
}
