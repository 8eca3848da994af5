package admin

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
)

// growing has a partition that gets an entry with each Peek.
type growing struct {
	closedStore
	peeks atomic.Int64
	fails atomic.Bool
}

func (g *growing) Peek(_ context.Context, _ *partition.Namespace, _ string, r partition.PeekRequest) (p partition.Peeked, err error) {
	if g.fails.Load() {
		return p, errReached
	}
	n := g.peeks.Add(1)
	for seq := max(1, n-int64(r.Limit)+1); seq <= n; seq++ {
		p.Entries = append(p.Entries, partition.Entry{Seq: seq, Occurred: 1, Payload: []byte(`{"email":"a@b"}`)})
	}
	return p, nil
}

// pipe is a ResponseWriter of a client that reads as it likes.
type pipe struct {
	header http.Header
	net.Conn
}

func (p pipe) Header() http.Header                { return p.header }
func (p pipe) WriteHeader(int)                    {}
func (p pipe) FlushError() error                  { return nil }
func (p pipe) SetWriteDeadline(t time.Time) error { return p.Conn.SetWriteDeadline(t) }

const tailPath = "/api/v1/namespaces/default/tail?partition=p&per_second=5"

// startTail begins a tail of an operator and returns the client's end. done is closed when the tail ends.
func startTail(ctx context.Context, s *Server) (client net.Conn, done chan struct{}) {
	server, client := net.Pipe()
	r, _ := http.NewRequestWithContext(ctx, "GET", "http://127.0.0.1:8081"+tailPath, nil)
	r.Header.Set("Authorization", "Bearer operator")
	done = make(chan struct{})
	go func() {
		defer close(done)
		s.ServeHTTP(pipe{http.Header{}, server}, r)
		_ = server.Close()
	}()
	return client, done
}

func TestATailShowsEachEntryOnceAndEndsAfterTenMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setupRoles(func(v *View) { v.Store = &growing{} })
		began := time.Now()
		client, done := startTail(t.Context(), s)
		seen := map[string]bool{}
		last := ""
		for lines := bufio.NewScanner(client); lines.Scan(); {
			last = lines.Text()
			if seen[last] {
				t.Errorf("%s comes twice", last)
			}
			seen[last] = true
		}
		<-done
		if last != `{"ended":"after 10 minutes"}` || time.Since(began) != tailFor {
			t.Errorf("it ends with %s after %v", last, time.Since(began))
		}
		if n := len(seen) - 1; n < 590 || n > 601 {
			t.Errorf("%d entries in 10 minutes, want one a second", n)
		}
	})
}

func TestAClientThatLeavesEndsItsTail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setupRoles(func(v *View) { v.Store = &growing{} })
		ctx, leave := context.WithCancel(t.Context())
		client, done := startTail(ctx, s)
		if _, err := bufio.NewReader(client).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		leave()
		_ = client.Close()
		<-done
		if len(s.tails) != 0 {
			t.Error("it still counts as running")
		}
	})
}

func TestAClientThatReadsTooSlowlyIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setupRoles(func(v *View) { v.Store = &growing{} })
		began := time.Now()
		_, done := startTail(t.Context(), s) // which reads nothing
		<-done
		if took := time.Since(began); took != tailWrite {
			t.Errorf("it is cut off after %v", took)
		}
	})
}

func TestTheFifthTailIsRejected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := setupRoles(func(v *View) { v.Store = &growing{} })
		ctx, leave := context.WithCancel(t.Context())
		var ends []chan struct{}
		for range maxTails {
			client, done := startTail(ctx, s)
			if _, err := bufio.NewReader(client).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			ends = append(ends, done)
			go func() {
				for lines := bufio.NewScanner(client); lines.Scan(); {
				}
			}()
		}
		w := send(s, "GET", tailPath, "operator", "")
		if w.Code != 429 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "too_many_tails") {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		s.end() // Stop does it
		for _, done := range ends {
			<-done
		}
		leave()
	})
}

func TestATailSaysWhyItEnds(t *testing.T) {
	t.Parallel()
	for why, change := range map[string]func(*Server, *growing, *atomic.Pointer[View]){
		"the store does not answer": func(_ *Server, g *growing, _ *atomic.Pointer[View]) { g.fails.Store(true) },
		"the process stops":         func(s *Server, _ *growing, _ *atomic.Pointer[View]) { s.end() },
		"the token may no longer do this": func(_ *Server, g *growing, v *atomic.Pointer[View]) {
			v.Store(&View{Store: g, Tokens: tokensOfEachRole()[:1]})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := &growing{}
			var view atomic.Pointer[View]
			view.Store(&View{Store: g, Tokens: tokensOfEachRole()})
			s := New(Config{Listen: "127.0.0.1:0", Source: func() View { return *view.Load() }}, zap.NewNop())
			client, done := startTail(t.Context(), s)
			lines := bufio.NewScanner(client)
			lines.Scan()
			synctest.Wait()
			change(s, g, &view)
			last := ""
			for lines.Scan() {
				last = lines.Text()
			}
			<-done
			if last != `{"ended":"`+why+`"}` {
				t.Errorf("%s: it ends with %s", why, last)
			}
		})
	}
}

func TestATailOfAnotherSiteIsRejected(t *testing.T) {
	t.Parallel()
	s := setupRoles(nil)
	if w := send(s, "GET", tailPath, "operator", "", "Sec-Fetch-Site", "cross-site"); w.Code != 403 {
		t.Errorf("got %d", w.Code)
	}
	for _, query := range []string{"per_second=0", "per_second=51", "partition=%3Cb%3E", "per_second=x"} {
		if w := send(s, "GET", "/api/v1/namespaces/default/tail?"+query, "operator", ""); w.Code != 400 {
			t.Errorf("%s: got %d", query, w.Code)
		}
	}
}
