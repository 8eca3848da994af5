package sink_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spillway-io/spillway/drain/sink"
)

func TestAFaultShowsNothingThatAPeerSent(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want string
	}{
		{t.Context(), errors.New("connection reset by peer"), "put to h: connection reset by peer"},
		{t.Context(), errors.New(`malformed HTTP response "c4n4ry"`), "put to h: malformed HTTP response"},
		{t.Context(), textproto.ProtocolError("c4n4ry"), "put to h: malformed answer"},
		{t.Context(), errors.New(strings.Repeat("é", 1000)), "put to h: " + strings.Repeat("é", 128)},
		{ended, errors.New("c4n4ry"), "put to h: context canceled"},
	} {
		got := sink.FaultError(c.ctx, "put to", "h", c.err)
		if got.Error() != c.want || !utf8.ValidString(got.Error()) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if got := sink.FaultError(ended, "put to", "h", errors.New("x")); !errors.Is(got, context.Canceled) {
		t.Errorf("got %v, want that of the context", got)
	}
}

func TestOnlyCodesOfATargetPass(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"SlowDown": " (SlowDown)", "es_rejected_execution_exception": " (es_rejected_execution_exception)", "a-1.b": " (a-1.b)",
		"": "", "two words": "", `{"c4n4ry":1}`: "", "é": "", "a\n": "", strings.Repeat("a", 64): " (" + strings.Repeat("a", 64) + ")", strings.Repeat("a", 65): "",
	} {
		if got := sink.ErrorCode(code); got != want {
			t.Errorf("%q: got %q, want %q", code, got, want)
		}
	}
}

func TestHostsAreChecked(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"x://h": "", "x://h:9200/a": "", "x://[::1]:1": "", "x://u:p@h": "",
		"x:": "names no host: write x://host", "x:h": "names no host: write x://host", "x://:1": "names no host: write x://host",
		"x://h:0": "port is not 1 to 65535", "x://h:65536": "port is not 1 to 65535", "x://h#f": "a # in the URL is written %23",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := sink.CheckHost(u, "x://host"); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
}

// A request is unsent only where there never was a connection for it.
func TestARoundTripSaysWhetherItSentAnything(t *testing.T) {
	t.Parallel()
	quiet := log.New(io.Discard, "", 0)
	answers := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(answers.Close)
	breaks := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(breaks.Close)
	untrusted := httptest.NewUnstartedServer(answers.Config.Handler)
	untrusted.Config.ErrorLog = quiet
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	gone := httptest.NewServer(answers.Config.Handler)
	gone.Close()
	for name, c := range map[string]struct {
		url          string
		dial         func(ctx context.Context, network, addr string) (net.Conn, error)
		fails, sent  bool
		wantDeadline bool
	}{
		"answered":              {url: answers.URL, sent: true},
		"the connection breaks": {url: breaks.URL, fails: true, sent: true},
		"rejected":              {url: gone.URL, fails: true},
		"no such host":          {url: "http://nobody.invalid", fails: true},
		"a link-local address":  {url: "http://169.254.169.254", fails: true},
		"no trust":              {url: untrusted.URL, fails: true},
		"time is over while it dials": {url: answers.URL, fails: true, wantDeadline: true, dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
	} {
		transport := sink.NewTransport()
		if c.dial != nil {
			transport.DialContext = c.dial
		}
		limit := time.Minute
		if c.wantDeadline {
			limit = 10 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := sink.RoundTrip(transport, req)
		if err == nil {
			_ = resp.Body.Close()
		}
		fault := err
		if err != nil {
			fault = sink.FaultError(ctx, "post to", "h", err)
		}
		if (err != nil) != c.fails || sink.IsUnsent(err) == c.sent || sink.IsUnsent(fault) == c.sent || errors.Is(fault, context.DeadlineExceeded) != c.wantDeadline {
			t.Errorf("%s: got %v, unsent %v and %v", name, err, sink.IsUnsent(err), sink.IsUnsent(fault))
		}
		cancel()
		transport.CloseIdleConnections()
	}
}

// A receiver that closed an idle connection and then its port may have read the request.
func TestARequestOnAConnectionThatBreaksCountsAsSent(t *testing.T) {
	t.Parallel()
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n++; n == 2 {
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(server.Close)
	transport := sink.NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	for i := range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := sink.RoundTrip(transport, req)
		if (err != nil) != (i == 1) || sink.IsUnsent(err) {
			t.Errorf("request %d: got %v, unsent %v", i+1, err, sink.IsUnsent(err))
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
}
