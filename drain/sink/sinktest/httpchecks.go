package sinktest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

var httpChecks = []httpCheck{
	{"rejects URLs that cannot work, without their secrets", checkURLs},
	{"rejects a name that resolves to a link-local address", checkLinkLocal},
	{"gives every status its outcome", checkStatuses},
	{"reads no endless answer to its end", checkEndless},
	{"waits for nothing on a connection that switched protocols", checkSwitched},
	{"takes a broken answer for a fault, and quotes none of it", checkBroken},
	{"ends a slow answer at the deadline", checkSlow},
	{"asks once a Write, and follows no redirect", checkOnce},
	{"uses its connection again after every answer", checkReuse},
	{"says when nothing was sent", checkUnsent},
	{"trusts signed certificates only", checkTLS},
}

func checkURLs(_ context.Context, x HTTP, _ *receiver) error {
	const (
		number = "host is a number but no address: write it as 10.0.0.1 or [fd00::1]"
		port   = "port is not 1 to 65535"
		local  = "link-local address "
	)
	scheme, _, _ := strings.Cut(x.URL, ":")
	wrong := map[string]string{
		scheme + ":":  "",
		scheme + ":h": "",
		x.URL + "#x":  "",
	}
	maps.Copy(wrong, x.Wrong)
	for host, want := range map[string]string{
		"":                         "",
		":443":                     "",
		"h:0":                      port,
		"h:65536":                  port,
		"169.254.169.254":          local + "169.254.169.254 is rejected",
		"[::ffff:169.254.169.254]": local + "::ffff:169.254.169.254 is rejected",
		"[64:ff9b::a9fe:a9fe]":     local + "64:ff9b::a9fe:a9fe is rejected",
		"[fe80::1%25eth0]:80":      local + "fe80::1%eth0 is rejected",
		"[::1%25lo]":               "host has a zone, which only link-local addresses need: leave it out",
		"2852039166":               number,
		"0XA9FEA9FE":               number,
		"127.1":                    number,
		"169.254.169.254.:80":      number,
	} {
		wrong[strings.Replace(x.URL, "HOST", host, 1)] = want
	}
	for raw, want := range wrong {
		if err := rejects(x.New, raw, want); err != nil {
			return err
		}
	}
	for _, host := range []string{
		"10.0.0.1", "localhost:8443", "[::1]", "[64:ff9b::7f00:1]",
		"h1", "1.example.", "0xfg",
	} {
		if _, err := x.sink(x.URL, host); err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
	}
	return nil
}

// checkLinkLocal has a name resolve to a link-local address. It is one of those that nobody may
// have (RFC 3927, section 2.1), so that a sink that does connect asks no service of a cloud.
func checkLinkLocal(ctx context.Context, x HTTP, r *receiver) error {
	transport := x.Transport(r.sink)
	transport.CloseIdleConnections()
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dial(ctx, network, "169.254.0.1:80")
	}
	short, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	err, bad := r.expect(short, x.Fault)
	if bad == nil && !strings.HasSuffix(err.Error(), "link-local address 169.254.0.1 is rejected") {
		bad = fmt.Errorf("got %w, want it rejected as link-local", err)
	}
	return bad
}

func checkStatuses(ctx context.Context, x HTTP, r *receiver) error {
	for status := 200; status < 600; status++ {
		r.set(func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			w.WriteHeader(status)
			if x.Answer != nil {
				x.Answer(w, status)
			}
		})
		err, bad := r.expect(ctx, x.Outcome(status))
		if bad != nil {
			return fmt.Errorf("%d: %w", status, bad)
		}
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%s: answered %d", r.host, status)) {
			return fmt.Errorf("%d: got %w, want the host and the status in it", status, err)
		}
		if err := shows(r.sink.Open(ctx), nil); err != nil {
			return fmt.Errorf("%d: %w", status, err)
		}
	}
	return nil
}

func checkEndless(ctx context.Context, x HTTP, r *receiver) error {
	for status, want := range map[int]string{200: x.Endless, 500: x.Outcome(500)} {
		var read atomic.Int64
		r.set(func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			w.WriteHeader(status)
			for page := strings.Repeat("x", 10_000); read.Load() < 64<<20; read.Add(int64(len(page))) {
				if _, err := io.WriteString(w, page); err != nil {
					return
				}
			}
		})
		if _, bad := r.expect(ctx, want); bad != nil || read.Load() >= 64<<20 {
			return fmt.Errorf("%d, after %d bytes: %v", status, read.Load(), bad)
		}
	}
	return nil
}

func checkSwitched(ctx context.Context, x HTTP, r *receiver) error {
	open := make(chan struct{})
	defer close(open)
	const head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
	r.set(bytesOf(head, open))
	_, bad := r.expect(ctx, x.Outcome(101))
	return bad
}

func checkBroken(ctx context.Context, x HTTP, r *receiver) error {
	const (
		text    = canary + " " + secret
		end     = "\r\n\r\n" // of the head
		ok      = "HTTP/1.1 200 OK\r\n"
		chunked = ok + "Transfer-Encoding: chunked"
	)
	for answer, want := range map[string]string{
		"":                                      x.Fault,
		ok:                                      x.Fault,
		text + " " + text + end:                 x.Fault,
		"HTTP/1.1 " + text + end:                x.Fault,
		ok + text + end:                         x.Fault,
		ok + "Content-Length: " + text + end:    x.Fault,
		ok + "Transfer-Encoding: " + text + end: x.Fault,
		ok + "X: " + strings.Repeat("x", 1<<20) + end: x.Fault,

		ok + "Content-Length: 100" + end + "{":                  x.Cut,
		chunked + end + text + "\r\n":                           x.Cut,
		chunked + "\r\nTrailer: X" + end + "0\r\n" + text + end: x.Cut,

		"HTTP/1.1 500 " + text + "\r\nContent-Length: 13" + end + text:                      x.Outcome(500),
		"HTTP/1.1 302 Found\r\nLocation: http://" + canary + "/\r\nContent-Length: 0" + end: x.Outcome(302),
	} {
		r.set(bytesOf(answer, nil))
		_, bad := r.expect(ctx, want)
		if bad = first(bad, shows(r.sink.Open(ctx), nil)); bad != nil {
			return fmt.Errorf("%.100q: %w", answer, bad)
		}
	}
	return nil
}

func checkSlow(ctx context.Context, x HTTP, r *receiver) error {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nX: ",
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
	} {
		open := make(chan struct{})
		r.set(bytesOf(answer, open))
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		kind, err, bad := r.write(short)
		cancel()
		close(open)
		enough := x.Cut == Kind(nil) && strings.HasSuffix(answer, "\r\n\r\n") // the status
		if bad != nil || !errors.Is(err, context.DeadlineExceeded) && !(enough && err == nil) {
			return fmt.Errorf("%q: got %s: %v, %v", answer, kind, err, bad)
		}
	}
	return nil
}

// checkOnce breaks connections that were used before: on those net/http may repeat a request.
func checkOnce(ctx context.Context, x HTTP, r *receiver) error {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, answer := range map[string]http.HandlerFunc{
		"hangs up": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"reads and hangs up": func(_ http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			panic(http.ErrAbortHandler)
		},
		"redirects": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"500": status(http.StatusInternalServerError),
		"503": status(http.StatusServiceUnavailable),
	} {
		r.set(x.Accept)
		if err := r.sink.Open(ctx); err != nil {
			return err
		}
		if _, err, bad := r.write(ctx); err != nil || bad != nil {
			return fmt.Errorf("before it %s: %v, %v", name, err, bad)
		}
		r.set(answer)
		if _, err, bad := r.write(ctx); err == nil || bad != nil || r.requests.Load() != 1 {
			return fmt.Errorf("%s: got %d requests, want 1: %v, %v", name, r.requests.Load(), err, bad)
		}
	}
	return nil
}

func checkReuse(ctx context.Context, x HTTP, r *receiver) error {
	for _, status := range []int{200, 302, 401, 422, 429, 500, 503, 200} {
		r.set(func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.Repeat("x", x.Reads))
		})
		if _, _, bad := r.write(ctx); bad != nil {
			return bad
		}
	}
	if n := r.conns.Load(); n != 1 {
		return fmt.Errorf("got %d connections, want 1", n)
	}
	return nil
}

func checkUnsent(ctx context.Context, x HTTP, r *receiver) error {
	x.Transport(r.sink).CloseIdleConnections()
	r.Server.Close()
	err, bad := r.expect(ctx, x.Fault)
	if bad == nil && !sink.IsUnsent(err) {
		bad = fmt.Errorf("got %w, want it unsent", err)
	}
	return bad
}

func checkTLS(ctx context.Context, x HTTP, _ *receiver) error {
	plain := httptest.NewServer(x.Accept)
	defer plain.Close()
	sealed := httptest.NewUnstartedServer(x.Accept)
	sealed.Config.ErrorLog = log.New(io.Discard, "", 0)
	sealed.StartTLS()
	defer sealed.Close()
	ask := func(raw string, on *httptest.Server, roots *x509.CertPool) error {
		s, err := x.sink(raw, on.Listener.Addr().String())
		if err != nil {
			return err
		}
		r := receiver{sink: s}
		defer func() { _ = s.Close(context.Background()) }()
		x.Transport(s).TLSClientConfig = &tls.Config{RootCAs: roots}
		if err := s.Open(ctx); err != nil {
			return err
		}
		_, err, bad := r.write(ctx)
		return first(bad, err)
	}
	for name, err := range map[string]error{
		"TLS to a plain server":            ask(x.TLS, plain, nil),
		"a plain request of TLS":           ask(x.URL, sealed, nil),
		"a certificate that nobody signed": ask(x.TLS, sealed, nil),
	} {
		if bad := shows(err, nil); err == nil || bad != nil {
			return fmt.Errorf("%s: got %v, %v", name, err, bad)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(sealed.Certificate())
	return ask(x.TLS, sealed, roots)
}

// bytesOf reads a request, answers with these bytes, and closes the connection, when open is
// closed where there is one.
func bytesOf(answer string, open <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, answer)
		if open != nil {
			<-open
		}
		// Closed with something unread, it would be reset, and the answer perhaps lost on its way.
		if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			_, _ = io.Copy(io.Discard, conn)
		}
	}
}
