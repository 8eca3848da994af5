package client

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

// Errors of Report and ReportAt. The entry is counted as dropped.
var (
	ErrClosed       = errors.New("client: closed")
	ErrTooLarge     = errors.New("client: the payload is larger than MaxEntry")
	ErrEmpty        = errors.New("client: the payload is empty")
	ErrBadPartition = errors.New("client: a partition is a letter or digit, then letters, digits, ._- up to 128")
	ErrBadID        = errors.New("client: an id is 1 to 64 printable bytes without a space")
)

// Client is safe for concurrent use.
type Client struct {
	cfg      Config
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

// New returns a Client for the service at url, such as "http://127.0.0.1:8080". It
// connects to nothing yet. The caller closes it.
func New(url string, cfg Config) (*Client, error) {
	own := cfg.Transport == nil
	cfg.fill()
	base, err := endpoint(url)
	if err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &Client{
		cfg:    cfg,
		own:    own,
		began:  time.Now(),
		keys:   rand.Text(),
		target: base + "/v1/" + cfg.Namespace,
		opaque: base + "/v1/" + cfg.Namespace + "/",
		http: &http.Client{
			Transport:     cfg.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		breaker: breaker{after: cfg.BreakAfter, every: cfg.ProbeEvery},
		notices: notices{
			onDrop:  cfg.OnDrop,
			onError: cfg.OnError,
			drops:   map[Reason]int64{},
			wake:    make(chan struct{}, 1),
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
	if cfg.OnDrop != nil || cfg.OnError != nil {
		c.telling.Go(func() { c.notices.run(c.told) })
	}
	return c, nil
}

// Report queues one entry, as of now. It copies payload, which is best JSON: other
// bytes travel one to a request. It returns an error only for what can never be
// sent: ErrTooLarge, ErrEmpty, ErrBadPartition, ErrClosed.
func (c *Client) Report(partition string, payload []byte) error {
	return c.report(partition, payload, time.Now(), "")
}

// ReportAt queues one entry that occurred at a time, with an id that the sinks see,
// or "" for none. Only JSON payloads keep their id. It returns what Report does, or ErrBadID.
func (c *Client) ReportAt(partition string, payload []byte, at time.Time, id string) error {
	if id != "" && !validID(id) {
		return c.invalid(Invalid, ErrBadID)
	}
	return c.report(partition, payload, at, id)
}

func (c *Client) report(partition string, payload []byte, at time.Time, id string) error {
	switch {
	case len(payload) > c.cfg.MaxEntry:
		return c.invalid(TooLarge, ErrTooLarge)
	case len(payload) == 0:
		return c.invalid(Invalid, ErrEmpty)
	case !validName(partition, 128):
		return c.invalid(Invalid, ErrBadPartition)
	}
	e := newEntry(payload)
	e.id, e.occurred = id, at.UnixMilli()

	c.mu.Lock()
	c.reported++
	if c.closed {
		c.drop(Shutdown, 1)
		c.mu.Unlock()
		e.free()
		return ErrClosed
	}
	c.seq++
	e.seq, e.queued = c.seq, time.Since(c.began)
	p := c.queue.part(partition)
	c.queue.add(p, e)
	c.trim(p)
	wake := c.queue.sendable.entries == 1 || len(c.inFlight) < c.cfg.InFlight && c.full()
	c.mu.Unlock()
	if wake {
		c.look()
	}
	return nil
}

// invalid counts an entry that is not taken.
func (c *Client) invalid(why Reason, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported++
	c.drop(why, 1)
	return err
}

// full reports whether what may be sent fills a request.
func (c *Client) full() bool {
	s := c.queue.sendable
	return s.entries >= c.cfg.Batch || s.bytes >= c.cfg.BatchBytes
}

// trim makes room: a partition beyond half of the queue loses its own oldest entry,
// and the queue its oldest. Entries in flight are not in it.
func (c *Client) trim(p *part) {
	for p.size.entries > c.cfg.Queue/2 || p.size.bytes > c.cfg.QueueBytes/2 {
		c.lose(p, QueueOverflow)
	}
	for c.queue.size.entries > c.cfg.Queue || c.queue.size.bytes > c.cfg.QueueBytes {
		c.lose(c.queue.oldest.part, QueueOverflow)
	}
}

// lose drops the oldest entry of a partition.
func (c *Client) lose(p *part, why Reason) {
	c.queue.take(p).free()
	c.queue.settle(p)
	c.drop(why, 1)
}

// look wakes the dispatcher.
func (c *Client) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Flush sends what was reported before it without waiting for the linger, and returns
// when the service has it or it is dropped; or when ctx ends, with its error.
func (c *Client) Flush(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.seq
	c.urgent = max(c.urgent, last)
	c.look()
	c.waiting++
	defer func() { c.waiting-- }()
	for c.holds(last) {
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
			c.mu.Lock()
		case <-ctx.Done():
			c.mu.Lock()
			return fmt.Errorf("client: %d entries are not sent: %w", c.pending(), ctx.Err())
		}
	}
	return nil
}

// holds reports whether an entry up to a sequence is pending.
func (c *Client) holds(last uint64) bool {
	for r := range c.inFlight {
		if r.first <= last {
			return true
		}
	}
	for _, p := range c.queue.parts {
		if p.first != nil && p.first.seq <= last {
			return true
		}
	}
	return false
}

// announce wakes the calls of Flush. It is called with the lock held.
func (c *Client) announce() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// Close takes no more entries, sends what is left, and ends all goroutines, with the
// connections of a transport of its own. When ctx
// ends first, what is left is dropped, and the error says how much. It may be
// called twice, but not from OnDrop or OnError, for which it waits.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	err := c.Flush(ctx)
	c.closing.Do(func() {
		c.cancel()
		close(c.quit)
		c.running.Wait()
		if c.own {
			c.http.CloseIdleConnections()
		}
		close(c.told) // the callbacks hear of what was dropped just now
	})
	c.telling.Wait()
	return err
}
