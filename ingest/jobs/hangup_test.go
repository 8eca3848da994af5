//go:build linux

package jobs

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// A client that goes away ends its poll, however it goes.
func TestAClientThatGoesAwayWhileItWaitsEndsItsPoll(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(net.Conn) error{
		"closes":                  func(c net.Conn) error { return c.Close() },
		"closes its half":         func(c net.Conn) error { return c.(*net.TCPConn).CloseWrite() },
		"resets":                  func(c net.Conn) error { _ = c.(*net.TCPConn).SetLinger(0); return c.Close() },
		"pipelines and then ends": func(c net.Conn) error { _, _ = io.WriteString(c, pollText); return c.Close() },
	} {
		p := served(t, nil, nil)
		c := p.hold(pollText)
		eventually(t, "the poll waits", func() bool { return p.waiting() == 1 })
		if err := leave(c); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+": the poll has ended", func() bool { return p.polls() == 0 && p.metric("rejections_total", "hung_up") > 0 })
		p.do("POST", "/v1/mail/q", "x")
		if r := p.do("POST", "/v1/mail/q/claim", ""); r.data() != "x" || r.Jobs[0].Attempt != 1 {
			t.Errorf("%s: got %s", name, r.raw)
		}
	}
}

// A client that goes away while its claim runs: what it was handed goes back, uncounted.
func TestAClientThatGoesAwayWithJobsInHandSwallowsNone(t *testing.T) {
	t.Parallel()
	for _, wait := range []string{"0s", "10m"} {
		p := served(t, nil, nil)
		p.do("POST", "/v1/mail/q", "[1,2,3]", asJSON)
		held := make(chan struct{})
		p.store.With(func() { p.store.held = held })
		c := p.hold(strings.Replace(pollText, "wait=10m", "count=2&wait="+wait, 1))
		eventually(t, "it is handed two", func() bool { _, leased := p.store.ready("q"); return leased == 2 })
		leave(t, c)
		p.store.With(func() { // the first two attempts to give them back fail
			p.store.held = nil
			left := 2
			p.store.Fail = func(b *job.Batch) error {
				if len(b.Settles) > 0 && left > 0 {
					left--
					return partition.ErrUnknown
				}
				return nil
			}
		})
		close(held)
		eventually(t, "they are ready", func() bool { ready, _ := p.store.ready("q"); return ready == 3 })
		if r := p.do("POST", "/v1/mail/q/claim?count=9", ""); r.data() != "1 2 3" || r.Jobs[0].Attempt != 1 {
			t.Errorf("wait %s: got %s", wait, r.raw)
		}
	}
}

// leave closes a connection once its end has arrived at the server: what is answered before that is sent.
func leave(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err = cmp.Or(err, c.(*net.TCPConn).CloseWrite()); err != nil {
		t.Fatal(err)
	}
	const finWait2 = 5 // the system of the server has acknowledged the end
	eventually(t, "the end of the connection arrives", func() (arrived bool) {
		_ = raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			arrived = err == nil && info.State == finWait2
		})
		return arrived
	})
	_ = c.Close()
}

// goneConn is a connection that is closed.
type goneConn struct{ syscall.RawConn }

func (goneConn) Control(func(uintptr)) error { return net.ErrClosed }

func TestJobsOfAClientThatLeftGoBackAlsoWhileTheEngineStops(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, s *fakeStore, e *Engine, ns *job.Namespace) {
		publish(t, e, ns, "q", "a", "b")
		s.With(func() { s.after = time.Second })
		claim := claims(e, Claim{Namespace: ns, Queues: []string{"q"}, Count: 2, Conn: goneConn{}})
		synctest.Wait()
		if _, leased := s.ready("q"); leased != 2 {
			t.Fatalf("%d jobs are claimed", leased)
		}
		var stops sync.WaitGroup
		for range 2 { // it may be stopped twice
			stops.Go(func() {
				if err := e.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		stops.Wait()
		if r := <-claim; !errors.Is(r.err, ErrHungUp) {
			t.Errorf("got %+v", r)
		}
		if ready, leased := s.ready("q"); ready != 2 || leased > 0 {
			t.Errorf("%d jobs are ready, and %d leased", ready, leased)
		}
	})
}

func TestARequestBehindAPollIsNoHangUp(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	c := p.hold(pollText + "GET /v1/mail/q HTTP/1.1\r\nHost: x\r\n\r\n")
	eventually(t, "the poll waits", func() bool { return p.waiting() == 1 })
	_, _ = io.WriteString(c, "GET /v1/mail/r HTTP/1.1\r\nHost: x\r\n\r\n")
	// Were the bytes taken for a hang-up, the poll would have ended before this answer.
	if r := p.do("GET", "/v1/mail/other", ""); r.status != 200 || p.waiting() != 1 {
		t.Fatalf("the poll has ended: %s", r.raw)
	}
	p.do("POST", "/v1/mail/q", "x")
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	in := bufio.NewReader(c)
	for _, want := range []string{`"data":"eA=="`, `"queue":"q"`, `"queue":"r"`} {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Errorf("got %d %s %v, want %s", resp.StatusCode, body, err, want)
		}
	}
}

func TestJobsReachWhoIsThereOfManyWhoLeft(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	const gone = 200
	var conns []net.Conn
	for range gone {
		conns = append(conns, p.hold(pollText))
	}
	eventually(t, "all wait", func() bool { return p.waiting() == gone })
	stays := p.hold(pollText)
	eventually(t, "the last waits", func() bool { return p.waiting() == gone+1 })
	for _, c := range conns {
		_ = c.Close()
	}
	p.do("POST", "/v1/mail/q", "x") // at once: some of them were not yet seen to leave
	_ = stays.SetReadDeadline(time.Now().Add(20 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(stays), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	if !strings.Contains(string(body), `"attempt":1,`) || !strings.Contains(string(body), `"data":"eA=="`) {
		t.Errorf("got %s", body)
	}
}

func TestPollsEndEmptyWhenTheServerRetiresOrStops(t *testing.T) {
	t.Parallel()
	s := newFake(t, nil)
	p := listen(t, s, start(t, s), nil)
	c := p.hold(pollText)
	eventually(t, "the poll waits", func() bool { return p.waiting() == 1 })
	next := served(t, nil, nil)
	if err := p.server.Retire(t.Context(), next.server); err != nil {
		t.Error(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	if string(body) != "{\"jobs\":[]}\n" || resp.StatusCode != 200 {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
}

// What the system has taken of an answer that a client does not read to its end is useless to
// the client.
func TestJobsOfAnAnswerThatIsNotSentWholeGoBack(t *testing.T) {
	t.Parallel()
	const n, size = 8, 2 << 20 // more than the buffers of a connection hold
	payload := strings.Repeat("x", size)
	claim := strings.Replace(pollText, "wait=10m", "count=100", 1)
	last := strings.Replace(claim, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)
	for name, c := range map[string]struct {
		secured bool
		claim   string
		read    int64 // of the answer, before the client leaves
		back    bool
	}{
		"a part":                {false, claim, 1000, true},
		"a part, over TLS":      {true, claim, 1000, true},
		"all":                   {false, last, math.MaxInt64, false},
		"all, over TLS":         {true, last, math.MaxInt64, false},
		"none, next one halved": {false, claim + "POST /v1/mail/q", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, dial := served(t, nil, nil), func(p *port) net.Conn { return p.hold("") }
			if c.secured {
				p, dial = servedTLS(t)
			}
			for range n {
				publish(t, p.engine, p.store.Namespace("mail"), "q", payload)
			}
			conn := dial(p)
			if _, err := io.WriteString(conn, c.claim); err != nil {
				t.Fatal(err)
			}
			eventually(t, "they are claimed", func() bool { _, leased := p.store.ready("q"); return leased == n })
			if c.back {
				if _, err := io.CopyN(io.Discard, conn, c.read); err != nil {
					t.Fatal(err)
				}
			} else if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
				t.Fatal(err)
			} else if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			eventually(t, "the connection is over", func() bool { return p.metric("connections") == 0 })
			if !c.back {
				if ready, leased := p.store.ready("q"); ready > 0 || leased != n {
					t.Errorf("%d jobs of an answer that was read are ready, %d leased", ready, leased)
				}
				return
			}
			eventually(t, "they are ready", func() bool { ready, _ := p.store.ready("q"); return ready == n })
			if j, err := p.store.Peek(t.Context(), p.store.Namespace("mail"), "q"); err != nil || j.Attempt != 0 {
				t.Errorf("the attempt counts: %d, %v", j.Attempt, err)
			}
		})
	}
}

// servedTLS is served over TLS, and how to connect.
func servedTLS(t *testing.T) (*port, func(*port) net.Conn) {
	t.Helper()
	web := httptest.NewUnstartedServer(nil) // for its certificate
	web.StartTLS()
	web.Close()
	p := served(t, nil, func(c *ingest.Config) {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: web.TLS.Certificates}
	})
	return p, func(p *port) net.Conn {
		c, err := tls.Dial("tcp", p.addr, &tls.Config{InsecureSkipVerify: true}) // #nosec G402 -- of this test
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

func TestAPollOverTLSSeesItsClientLeave(t *testing.T) {
	t.Parallel()
	p, dial := servedTLS(t)
	c := dial(p)
	if _, err := fmt.Fprint(c, pollText); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the poll waits", func() bool { return p.waiting() == 1 })
	_ = c.Close()
	eventually(t, "the poll has ended", func() bool { return p.polls() == 0 })
}

// The timeouts of a connection are for what it sends and takes, not for a wait.
func TestAPollOutlivesTheTimeoutsOfItsConnection(t *testing.T) {
	t.Parallel()
	p := served(t, nil, func(c *ingest.Config) {
		c.ReadTimeout, c.WriteTimeout, c.IdleTimeout = 4*time.Second, 4*time.Second, 4*time.Second
	})
	began := time.Now()
	if r := p.do("POST", "/v1/mail/q/claim?wait=5s", ""); r.raw != "{\"jobs\":[]}\n" || time.Since(began) < 5*time.Second {
		t.Errorf("after %v: got %d %s", time.Since(began), r.status, r.raw)
	}
}

// The numbers of waiting polls begin anew in time; a search through the negative ones would
// hold every poll up for seconds.
func TestTheNumbersOfPollsBeginAnew(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	h := newHangups(zap.NewNop())
	defer h.close()
	h.last = math.MaxInt32 - 1
	for _, want := range []int32{math.MaxInt32, 1, 2} {
		c := &client{conn: raw}
		h.add(c)
		if c.watch != want {
			t.Errorf("got %d, want %d", c.watch, want)
		}
		h.remove(c)
	}
}
