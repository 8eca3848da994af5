package spillway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Errors of Report and ReportEvent. The entry is counted as dropped.
var (
	ErrClosed       = errors.New("spillway: closed")
	ErrTooLarge     = errors.New("spillway: the payload is larger than MaxEntry")
	ErrEmpty        = errors.New("spillway: the payload is empty")
	ErrBadPartition = errors.New("spillway: a partition is a letter or digit, then letters, digits, ._- up to 128")
	ErrBadID        = errors.New("spillway: an id is 1 to 64 printable bytes without a space")
)

// Reporter is safe for concurrent use.
type Reporter struct {
	cfg      ReporterConfig
	target   string // URL of the mixed route
	opaque   string // URL of a partition, without its name
	http     *http.Client
	own      bool // its transport is of its own
	began    time.Time
	keys     string        // what idempotency keys begin with
	numbers  atomic.Uint64 // what they go on with
	breaker  breaker
	notices  notices
	requests chan *request
	wake     chan struct{} // holds one: the dispatcher has to look
	working  context.Context
	cancel   context.CancelFunc
	quit     chan struct{} // the dispatcher ends
	running  sync.WaitGroup
	told     chan struct{} // nothing is dropped any more: the callbacks end
	telling  sync.WaitGroup
	closing  sync.Once

	mu       sync.Mutex
	queue    queue
	inFlight map[*request]bool
	reported int64
	acked    int64
	dropped  map[Reason]int64
	untold   discards
	seq      uint64
	urgent   uint64 // entries up to this sequence do not linger
	closed   bool
	waiting  int           // calls of Flush
	changed  chan struct{} // closes at the next change, while someone waits
}

// NewReporter returns a Reporter for the service at url, such as "http://127.0.0.1:8080". It
// connects to nothing yet. The caller closes it.
func NewReporter(url string, cfg ReporterConfig) (*Reporter, error) {
	own := cfg.Transport == nil
	cfg.fill()
	base, err := endpoint(url)
	if err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	target := base + "/v1/" + cfg.Namespace
	if cfg.OnError == nil {
		cfg.OnError = newWarner(target).warn
	}
	c := &Reporter{
		cfg:    cfg,
		own:    own,
		began:  time.Now(),
		keys:   rand.Text(),
		target: target,
		opaque: target + "/",
		http: &http.Client{
			Transport:     cfg.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		breaker: breaker{after: cfg.BreakAfter, every: cfg.ProbeEvery},
		notices: notices{
			onDrop:     cfg.OnDrop,
			onError:    cfg.OnError,
			dropGuest:  guest{name: "OnDrop"},
			errorGuest: guest{name: "OnError"},
			drops:      map[Reason]int64{},
			wake:       make(chan struct{}, 1),
		},
		requests: make(chan *request, cfg.InFlight),
		wake:     make(chan struct{}, 1),
		quit:     make(chan struct{}),
		told:     make(chan struct{}),
		queue:    queue{parts: map[string]*part{}},
		inFlight: map[*request]bool{},
		dropped:  map[Reason]int64{},
		untold:   discards{},
	}
	c.working, c.cancel = context.WithCancel(context.Background())
	c.running.Go(c.dispatch)
	for range cfg.InFlight {
		c.running.Go(func() { newSender(c).run() })
	}
	c.telling.Go(func() { c.notices.run(c.told) })
	return c, nil
}

// An Event is what ReportEvent takes.
type Event struct {
	Partition string
	Payload   []byte    // best JSON: other bytes travel one to a request
	Time      time.Time // when it occurred; zero: now
	ID        string    // that the sinks see, with a payload of JSON; "": none
}

// Report queues an event of now. It returns what ReportEvent does.
func (r *Reporter) Report(partition string, payload []byte) error {
	return r.ReportEvent(Event{Partition: partition, Payload: payload})
}

// ReportEvent queues an event, with a copy of its payload. It returns an error only for what can
// never be sent: ErrTooLarge, ErrEmpty, ErrBadPartition, ErrBadID, ErrClosed.
func (r *Reporter) ReportEvent(event Event) error {
	switch {
	case len(event.Payload) > r.cfg.MaxEntry:
		return r.invalid(TooLarge, ErrTooLarge)
	case len(event.Payload) == 0:
		return r.invalid(Invalid, ErrEmpty)
	case !validName(event.Partition, 128):
		return r.invalid(Invalid, ErrBadPartition)
	case event.ID != "" && !validID(event.ID):
		return r.invalid(Invalid, ErrBadID)
	case event.Time.IsZero():
		event.Time = time.Now()
	}
	e := newEntry(event.Payload)
	e.id, e.occurred = event.ID, event.Time.UnixMilli()

	r.mu.Lock()
	r.reported++
	if r.closed {
		r.drop(Shutdown, 1)
		r.mu.Unlock()
		e.free()
		return ErrClosed
	}
	r.seq++
	e.seq, e.queued = r.seq, time.Since(r.began)
	p := r.queue.part(event.Partition)
	r.queue.add(p, e)
	r.trim(p)
	wake := r.queue.sendable.entries == 1 || len(r.inFlight) < r.cfg.InFlight && r.full()
	r.mu.Unlock()
	if wake {
		r.look()
	}
	return nil
}

// invalid counts an entry that is not taken.
func (r *Reporter) invalid(why Reason, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reported++
	r.drop(why, 1)
	return err
}

// full reports whether what may be sent fills a request.
func (r *Reporter) full() bool {
	s := r.queue.sendable
	return s.entries >= r.cfg.Batch || s.bytes >= r.cfg.BatchBytes
}

// trim makes room: a partition beyond half of the queue loses its own oldest entry,
// and the queue its oldest. Entries in flight are not in it.
func (r *Reporter) trim(p *part) {
	for p.size.entries > r.cfg.Queue/2 || p.size.bytes > r.cfg.QueueBytes/2 {
		r.lose(p, QueueOverflow)
	}
	for r.queue.size.entries > r.cfg.Queue || r.queue.size.bytes > r.cfg.QueueBytes {
		r.lose(r.queue.oldest.part, QueueOverflow)
	}
}

// lose drops the oldest entry of a partition.
func (r *Reporter) lose(p *part, why Reason) {
	r.queue.take(p).free()
	r.queue.settle(p)
	r.drop(why, 1)
}

// look wakes the dispatcher.
func (r *Reporter) look() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Flush sends what was reported before it without waiting for the linger, and returns
// when the service has it or it is dropped; or when ctx ends, with its error.
func (r *Reporter) Flush(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.seq
	r.urgent = max(r.urgent, last)
	r.look()
	r.waiting++
	defer func() { r.waiting-- }()
	for r.holds(last) {
		if r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
			r.mu.Lock()
		case <-ctx.Done():
			r.mu.Lock()
			return fmt.Errorf("spillway: %d entries are not sent: %w", r.pending(), ctx.Err())
		}
	}
	return nil
}

// holds reports whether an entry up to a sequence is pending.
func (r *Reporter) holds(last uint64) bool {
	for req := range r.inFlight {
		if req.first <= last {
			return true
		}
	}
	for _, p := range r.queue.parts {
		if p.first != nil && p.first.seq <= last {
			return true
		}
	}
	return false
}

// announce wakes the calls of Flush. It is called with the lock held.
func (r *Reporter) announce() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Close takes no more entries, sends what is left, and ends all goroutines, with the
// connections of a transport of its own. When ctx
// ends first, what is left is dropped, and the error says how much. It may be
// called twice, but not from OnDrop or OnError, for which it waits.
func (r *Reporter) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	err := r.Flush(ctx)
	r.closing.Do(func() {
		r.cancel()
		close(r.quit)
		r.running.Wait()
		if r.own {
			r.http.CloseIdleConnections()
		}
		close(r.told) // the callbacks hear of what was dropped just now
	})
	r.telling.Wait()
	return err
}
