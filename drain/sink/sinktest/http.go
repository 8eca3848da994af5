package sinktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// secret is the password in the URLs of HTTP, which no error may show.
const secret = "s3cret"

// HTTP describes a sink with an HTTP target, which it asks with a transport of
// sink.NewTransport. Outcomes are in the words of Kind.
type HTTP struct {
	New func(u *url.URL) (sink.Sink, error)
	// URL is a right one with HOST for host and port, and where it can have one the
	// password s3cret. TLS is the same for a target with TLS.
	URL, TLS string
	// Wrong are further URLs that New rejects, and what their errors end in.
	Wrong map[string]string
	// Transport is that of a sink.
	Transport func(s sink.Sink) *http.Transport
	// Accept answers Open and Write as a target that takes everything.
	Accept http.HandlerFunc
	// Answer writes the body of an answer with a status, whose text may have the payload.
	// Nil: the body is empty.
	Answer func(w io.Writer, status int)
	// Outcome is what such an answer asks of the drain, for 101 and each of 200 to 599.
	Outcome func(status int) string
	// Fault is what it means when there is no usable answer.
	Fault string
	// Cut is what an answer of 200 means whose body breaks off or stalls, Endless one whose
	// body, of the letter x, has no end.
	Cut, Endless string
	// Reads is the longest body after which a connection is used again, in bytes.
	Reads int
}

// RunHTTP holds a sink to what HTTP targets have in common. Run needs a target that works,
// and RunHTTP one that answers anything.
func RunHTTP(t *testing.T, x HTTP) {
	t.Helper()
	for _, c := range httpChecks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := c.on(ctx, x); err != nil {
				t.Error(err)
			}
		})
	}
}

// httpCheck is a check of a sink with an HTTP target. r accepts everything.
type httpCheck struct {
	name string
	run  func(ctx context.Context, x HTTP, r *receiver) error
}

func (c httpCheck) on(ctx context.Context, x HTTP) error {
	r, err := x.receive(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	return c.run(ctx, x, r)
}

// A receiver is a server whose answer can be changed, with a sink on it.
type receiver struct {
	*httptest.Server
	host     string
	sink     sink.Sink
	requests atomic.Int32 // without those of Open
	conns    atomic.Int32

	mu     sync.Mutex
	answer http.HandlerFunc
}

// receive starts a receiver that accepts, and opens a sink on it.
func (x HTTP) receive(ctx context.Context) (*receiver, error) {
	r := &receiver{answer: x.Accept}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.conns.Add(1)
		}
	}
	r.Start()
	r.host = r.Listener.Addr().String()
	var err error
	if r.sink, err = x.sink(x.URL, r.host); err == nil {
		err = r.sink.Open(ctx)
	}
	if err != nil {
		r.Server.Close()
		return nil, err
	}
	return r, nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	answer := r.answer
	r.mu.Unlock()
	r.requests.Add(1)
	answer(w, req)
}

func (x HTTP) sink(raw, host string) (sink.Sink, error) {
	u, err := url.Parse(strings.Replace(raw, "HOST", host, 1))
	if err != nil {
		return nil, err
	}
	return x.New(u)
}

func (r *receiver) set(answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
	r.requests.Store(0)
}

func (r *receiver) close() {
	_ = r.sink.Close(context.Background())
	r.Server.Close()
}

// write is a Write of two entries with the canary. It is bad where the error shows what it
// must not, or where Write does not return.
func (r *receiver) write(ctx context.Context) (kind string, err, bad error) {
	batches := []*sink.Batch{newBatch("p", 1, 2)}
	limit := patience
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)+grace)
	}
	returned, err := Fixture{Sink: r.sink}.tryWrite(ctx, limit, batches...)
	if !returned {
		return "", nil, errors.New("Write has not returned")
	}
	return Kind(err), err, shows(err, batches)
}

// expect is a write that is also bad where it asks the drain for something else.
func (r *receiver) expect(ctx context.Context, want string) (err, bad error) {
	kind, err, bad := r.write(ctx)
	if bad == nil && kind != want {
		bad = fmt.Errorf("got %s, want %s: %v", kind, want, err)
	}
	return err, bad
}

// shows says what is wrong with an error's text.
func shows(err error, batches []*sink.Batch) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), secret):
		return fmt.Errorf("error text shows the password: %w", err)
	}
	return checkError(err, batches)
}
