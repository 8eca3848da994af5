package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a server that keeps the lines it accepts, and answers otherwise
// when told to.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	lines  []byte
	stall  chan struct{}
	answer http.HandlerFunc // not nil: instead of accepting; it may call keep
}

func newReceiver(t testing.TB) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		stall, answer := r.stall, r.answer
		r.mu.Unlock()
		if stall != nil {
			<-stall
		}
		if answer != nil {
			answer(w, req)
			return
		}
		r.keep(t, req, func(int) bool { return true })
	}))
	t.Cleanup(r.Close)
	return r
}

// keep stores the lines of a request that which lets through.
func (r *receiver) keep(t testing.TB, req *http.Request, which func(i int) bool) {
	body := req.Body
	if req.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			t.Error(err)
			return
		}
		body = z
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return // the client gave up
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := 0
	for len(data) > 0 {
		n := 0
		for data[n] != '\n' {
			n++
		}
		if which(i) {
			r.lines = append(r.lines, data[:n+1]...)
		}
		data = data[n+1:]
		i++
	}
}

func (r *receiver) set(answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *receiver) answering(name string, permanent bool, answer http.HandlerFunc) sinktest.Fault {
	return sinktest.Fault{Name: name, Permanent: permanent, Start: func() func() {
		r.set(answer)
		return func() { r.set(nil) }
	}}
}

func (r *receiver) stalled() func() {
	c := make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stall = c
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stall = nil
		close(c)
	}
}

func (r *receiver) records() ([]sinktest.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sinktest.ParseLines(r.lines)
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// hangUp closes the connection instead of answering.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func TestConforms(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{"plain": "", "gzip": "?gzip=1", "signed": "?header.X-Team=kart&signing_secret=" + oldSecret} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
				r := newReceiver(t)
				partly := func(result string) http.HandlerFunc {
					return func(w http.ResponseWriter, req *http.Request) {
						r.keep(t, req, func(i int) bool { return i != 3 })
						io.WriteString(w, `{"results":[{"i":3,"result":"`+result+`","reason":"too_large"}]}`)
					}
				}
				return sinktest.Fixture{
					Sink: newSink(t, r.URL+query), Received: r.records, Stall: r.stalled,
					Faults: []sinktest.Fault{
						r.answering("503", false, status(503)),
						r.answering("hangs up", false, hangUp),
						r.answering("422", true, status(422)),
						r.answering("401", false, status(401)),
						r.answering("404", true, status(404)),
						r.answering("one to retry", false, partly("retry")),
						r.answering("one dropped", true, partly("drop")),
						r.answering("one of its own form", false, partly("failed")),
					},
				}
			}})
		})
	}
}

func newSink(t testing.TB, raw string) *Sink {
	t.Helper()
	return sinktest.Make[*Sink](t, New, raw)
}

// outcomeOf is what a status asks of the drain for two entries of a buffer.
func outcomeOf(status int) string {
	switch {
	case status < 200, status/100 == 3, slices.Contains([]int{404, 405, 410, 501}, status):
		return "0.0 permanent, 0.1 permanent"
	case status < 300:
		return "accepted"
	case slices.Contains([]int{401, 403, 408, 429}, status), status >= 500:
		return "retry"
	}
	return "permanent"
}

func TestKeepsThePromisesOfHTTPTargets(t *testing.T) {
	t.Parallel()
	sinktest.RunHTTP(t, sinktest.HTTP{
		New: New, URL: "http://u:s3cret@HOST/s3cret?token=s3cret", TLS: "https://u:s3cret@HOST/in",
		Wrong: map[string]string{
			"ftp://h/":                    `sink ftp://h/: scheme "ftp" is neither http nor https`,
			"http:///in":                  "sink http:…: names no host: write http://host/path",
			"https://u:s3cret@:443/in":    "sink https://…@:443/…: names no host: write https://host/path",
			"http:h/in":                   "sink http:…: names no host: write http://host/path",
			"http://h/#x":                 "sink http://h/: a #fragment is never sent: leave it out",
			"http://h/?gzip=yes":          "sink http://h/?…: gzip is neither 0 nor 1",
			"http://h/?gzip":              "sink http://h/?…: gzip is neither 0 nor 1",
			"http://h/?gzip=1&a=1&gzip=1": `sink http://h/?…: option "gzip" is given twice`,
		},
		Transport: func(s sink.Sink) *http.Transport { return s.(*Sink).client },
		Accept:    status(200), Outcome: outcomeOf,
		Fault: "retry", Cut: "retry", Endless: "accepted", Reads: 50_000,
	})
}
