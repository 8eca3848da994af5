package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/spillway-io/spillway/drain/sink"
)

// A connection publishes messages and hands the stream's answers to the Writes that wait.
//
// The answer to a message comes to its reply subject: inbox, number of the Write, index of the
// message. The asynchronous publisher of the library is not used, for it retries, holds on to
// messages after the caller's ctx, and does not tell those who wait that the connection is gone.
type connection struct {
	nc    *nats.Conn
	inbox string

	mu     sync.Mutex
	writes map[uint64]*write
	last   uint64 // number of the latest Write
	lost   error  // why the connection is gone, or of no use
}

// A write is what a Write waits for. The connection's mutex guards it.
type write struct {
	number  uint64
	answers []answer
	missing int           // answers
	done    chan struct{} // closed when none is missing, or failed says why no more comes
	failed  error
}

type answer struct {
	given bool
	err   error // nil: accepted
}

// contextDialer ends a dial with the ctx of Open.
type contextDialer struct {
	ctx     context.Context
	timeout time.Duration
}

func (d contextDialer) Dial(network, address string) (net.Conn, error) {
	return (&net.Dialer{Timeout: d.timeout}).DialContext(d.ctx, network, address)
}

func connect(ctx context.Context, options nats.Options) (*connection, error) {
	c := &connection{writes: map[uint64]*write{}, inbox: nats.NewInbox() + "."}
	if deadline, has := ctx.Deadline(); has {
		each := time.Until(deadline) / time.Duration(len(options.Servers))
		options.Timeout = max(min(options.Timeout, each), time.Millisecond)
	}
	options.CustomDialer = contextDialer{ctx, options.Timeout}
	options.ClosedCB = func(nc *nats.Conn) { c.fail(closedBecause(nc.LastError()), true) }
	options.AsyncErrorCB = func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			// It does not say which message. All that are under way come again, and are told apart.
			c.fail(sink.Unsent(fmt.Errorf("%w: the user may not publish to the subject, or not subscribe to _INBOX.>",
				sink.ErrNotConnected)), false)
		}
	}
	nc, err := options.Connect()
	if err != nil {
		return nil, err
	}
	c.nc = nc
	if _, err = nc.Subscribe(c.inbox+">", c.settle); err == nil {
		limit, cancel := context.WithTimeout(ctx, options.Timeout)
		defer cancel()
		if err = nc.FlushWithContext(limit); err == nil {
			err = nc.LastError()
		}
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

func closedBecause(err error) error {
	if err == nil {
		return fmt.Errorf("%w: the connection is closed", sink.ErrNotConnected)
	}
	return fmt.Errorf("%w: %w", sink.ErrNotConnected, brief(err))
}

func (c *connection) isLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost != nil
}

func (c *connection) close() {
	if c != nil {
		c.nc.Close()
	}
}

// abandon closes a connection on which nothing can be published, so that the Writes that
// wait for their turn do not try the same, one second each.
func (c *connection) abandon(err error) error {
	err = closedBecause(err)
	c.fail(err, true)
	c.nc.Close()
	return err
}

// begin makes the write that n answers are for.
func (c *connection) begin(n int) (*write, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost != nil {
		return nil, c.lost
	}
	c.last++
	w := &write{number: c.last, answers: make([]answer, n), missing: n, done: make(chan struct{})}
	c.writes[w.number] = w
	return w, nil
}

// end takes no more answers for a write, which then belongs to the caller.
func (c *connection) end(w *write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.writes, w.number)
}

// fail ends the waiting of all Writes; lost, of those to come as well.
func (c *connection) fail(err error, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lost && c.lost == nil {
		c.lost = err
	}
	for _, w := range c.writes {
		if w.failed == nil && w.missing > 0 {
			w.failed = err
			close(w.done)
		}
	}
}

// settle takes one answer.
func (c *connection) settle(m *nats.Msg) {
	first, second, _ := strings.Cut(strings.TrimPrefix(m.Subject, c.inbox), ".")
	number, err := strconv.ParseUint(first, 36, 64)
	index, err2 := strconv.ParseUint(second, 36, 31)
	if err != nil || err2 != nil {
		return
	}
	rejection := judge(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.writes[number]
	if w == nil || int(index) >= len(w.answers) {
		return // the Write has returned
	}
	c.take(w, int(index), rejection)
}

// reject notes that a message was not published.
func (c *connection) reject(w *write, index int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.take(w, index, err)
}

// take notes an answer. The mutex is held.
func (c *connection) take(w *write, index int, err error) {
	if w.answers[index].given {
		return
	}
	w.answers[index] = answer{true, err}
	if w.missing--; w.missing == 0 && w.failed == nil {
		close(w.done)
	}
}

// streamInfo asks about the stream whose name follows.
const streamInfo = "$JS.API.STREAM.INFO."

// checkStream finds what a person has to mend, and the names of the streams that take the
// subject. A user who may not ask waits for a second in vain.
func (c *connection) checkStream(ctx context.Context,
	stream, subject string) (names []string, err error) {
	ask, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if stream != "" {
		_, err := c.request(ask, streamInfo+stream, nil)
		return []string{stream}, errors.Join(err, ctx.Err())
	}
	pattern := strings.Split(subject, ".")
	for i := range pattern {
		if strings.Contains(pattern[i], "{") {
			pattern[i] = "*"
		}
	}
	body, err := json.Marshal(map[string]string{"subject": strings.Join(pattern, ".")})
	if err != nil {
		return nil, err
	}
	list, err := c.request(ask, "$JS.API.STREAM.NAMES", body)
	if err == nil && list.Total == 0 {
		return nil, fmt.Errorf("no stream takes the subject %s: create one", strings.Join(pattern, "."))
	}
	return list.Streams, errors.Join(err, ctx.Err())
}

// apiAnswer is the part of a JetStream answer that is read here.
type apiAnswer struct {
	Error   *apiError `json:"error"`
	Total   int       `json:"total"`
	Streams []string  `json:"streams"`
	Config  struct {
		DuplicateWindow time.Duration `json:"duplicate_window"`
	} `json:"config"`
}

func (c *connection) request(ctx context.Context, subject string, body []byte) (apiAnswer, error) {
	var a apiAnswer
	m, err := c.nc.RequestWithContext(ctx, subject, body)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return a, errNoJetStream
	case errors.Is(err, context.DeadlineExceeded):
		return apiAnswer{Total: 1}, nil // perhaps the user may publish, but not ask
	case err != nil:
		return a, err
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return a, errors.New("the server's answer is not JSON")
	}
	if a.Error != nil {
		return a, a.Error
	}
	return a, nil
}
